#include "tests/negative/twin_programs.h"

#include "base/exception_message.h"
#include "ir/graph.h"
#include "ir/schema_match.h"
#include "load/export_graph.h"

#include <ATen/ATen.h>
#include <ATen/core/jit_type.h>
#include <torch/csrc/jit/ir/ir.h>
#include <torch/csrc/jit/runtime/interpreter.h>

#include <functional>
#include <sstream>

namespace sconce::testing {
namespace {

bool holds_tensor(const c10::IValue& value) {
  return value.isTensor() || value.isTensorList() ||
         (value.isList() && value.toList().elementType()->str().find("Tensor") != std::string::npos);
}

// Returns the type of an argument of a program. Kernels take numbers whose type is known.
c10::TypePtr input_type(const c10::Argument& argument, const c10::IValue& value) {
  const c10::TypePtr& declared = argument.type();
  const bool is_number =
      declared->str().find("Scalar") != std::string::npos || declared->str().find("number") != std::string::npos;
  return (is_number && !value.isNone()) || declared->hasFreeVariables() ? value.type() : declared;
}

Value* emit(Graph& graph, c10::Symbol kind, c10::ArrayRef<Value*> operands, const c10::TypePtr& type) {
  Node* node = graph.create(kind, operands, 0);
  node->add_output(type);
  if (kind != prim::ListConstruct) {
    resolve(*node);
  }
  node->append_to(graph.body());
  return node->output();
}

// A pointwise operator of any dtype but complex ones.
Value* pointwise(Graph& graph, Value* tensor) {
  return emit(graph, c10::Symbol::fromQualString("aten::maximum"), {tensor, tensor}, c10::TensorType::get());
}

Outcome outcome_of(const std::vector<c10::IValue>& given, const std::function<void(torch::jit::Stack&)>& run) {
  torch::jit::Stack inputs = copied(given);
  at::manual_seed(7);
  try {
    run(inputs);
    return {std::move(inputs), ""};
  } catch (const std::exception& failure) {
    // LibTorch's interpreter puts a traceback of no lines before the message: the program has no source.
    const std::string text = plain_message(failure);
    const std::string mark = "\nRuntimeError: ";
    const size_t found = text.starts_with("The following operation failed") ? text.find(mark) : std::string::npos;
    const std::string message = found == std::string::npos ? text : text.substr(found + mark.size());
    return {{}, message.empty() ? "an error without a message" : message.substr(0, message.find('\n'))};
  }
}

std::string difference_of_tensors(const at::Tensor& got, const at::Tensor& expected) {
  std::ostringstream text;
  if (got.sizes() != expected.sizes() || got.scalar_type() != expected.scalar_type()) {
    text << got.scalar_type() << got.sizes() << " instead of " << expected.scalar_type() << expected.sizes();
  } else if (expected.layout() == c10::kStrided && !expected.is_quantized() && expected.numel() != 0) {
    const auto wide = expected.is_complex() ? at::kComplexDouble : at::kDouble;
    const double tolerance = at::isReducedFloatingType(expected.scalar_type()) ? 0.05 : 1e-3;
    if (!at::allclose(got.to(wide), expected.to(wide), tolerance, tolerance, /*equal_nan=*/true)) {
      text << "other elements";
    }
  }
  return text.str();
}

}  // namespace

std::vector<c10::IValue> copied(const std::vector<c10::IValue>& values) {
  std::vector<c10::IValue> copies = values;
  for (c10::IValue& copy : copies) {
    if (copy.isTensor() && copy.toTensor().defined()) {
      copy = copy.toTensor().clone();
    } else if (copy.isList()) {
      copy = copy.deepcopy();
    }
  }
  return copies;
}

std::string difference(const Outcome& got, const Outcome& expected) {
  if (!got.error.empty() || !expected.error.empty()) {
    return got.error == expected.error ? ""
           : expected.error.empty()    ? "raises " + got.error
           : got.error.empty()         ? "does not raise " + expected.error
                                       : "raises " + got.error + " instead of " + expected.error;
  }
  for (size_t i = 0; i < expected.results.size(); ++i) {
    const c10::IValue& want = expected.results[i];
    const c10::IValue& have = got.results.at(i);
    if (want.isTensor() != have.isTensor()) {
      return "returns another type";
    }
    if (want.isTensor() && want.toTensor().defined() && have.toTensor().defined()) {
      if (const std::string text = difference_of_tensors(have.toTensor(), want.toTensor()); !text.empty()) {
        return "returns " + text;
      }
    }
  }
  return "";
}

struct TwinProgram::Oracle {
  explicit Oracle(const Graph& graph) : code(export_graph(graph), "interpreted") {}
  torch::jit::Code code;
};

TwinProgram::TwinProgram(const Op& op, const std::vector<c10::IValue>& like, ProgramForm form,
                         const std::vector<c10::IValue>& results)
    : form_(form), graph_(std::make_unique<Graph>()) {
  Graph& graph = *graph_;
  const auto& arguments = op.schema->arguments();
  const auto add_input = [&](const c10::TypePtr& type) {
    return graph.add_input("a" + std::to_string(graph.inputs().size()), type);
  };
  std::vector<std::vector<Value*>> leaves(like.size());
  for (size_t i = 0; i < like.size(); ++i) {
    if (form == ProgramForm::kGiven && like[i].isIntList()) {
      for (size_t k = 0; k < like[i].toListRef().size(); ++k) {
        leaves[i].push_back(add_input(c10::IntType::get()));
      }
    } else if (form == ProgramForm::kGiven) {
      leaves[i].push_back(add_input(input_type(arguments[i], like[i])));
    } else if (like[i].isTensor()) {
      leaves[i].push_back(add_input(c10::TensorType::get()));
    } else if (holds_tensor(like[i])) {
      for (const c10::IValue& element : like[i].toListRef()) {
        leaves[i].push_back(element.isTensor() ? add_input(c10::TensorType::get()) : nullptr);
      }
    }
  }
  std::vector<Value*> operands;
  for (size_t i = 0; i < like.size(); ++i) {
    if (form == ProgramForm::kGiven && like[i].isIntList()) {
      operands.push_back(emit(graph, prim::ListConstruct, leaves[i], c10::ListType::ofInts()));
    } else if (form == ProgramForm::kGiven) {
      operands.push_back(leaves[i][0]);
    } else if (like[i].isTensor()) {
      operands.push_back(pointwise(graph, leaves[i][0]));
    } else if (holds_tensor(like[i])) {
      for (Value*& leaf : leaves[i]) {
        leaf = leaf == nullptr ? graph.insert_constant({}, graph.body().return_node()) : pointwise(graph, leaf);
      }
      operands.push_back(emit(graph, prim::ListConstruct, leaves[i], c10::ListType::create(like[i].toList().elementType())));
    } else {
      operands.push_back(graph.insert_constant(like[i], graph.body().return_node()));
    }
  }
  Node* node = graph.create(op.kind, operands, op.schema->returns().size());
  for (size_t i = 0; i < node->outputs().size(); ++i) {
    const c10::TypePtr& declared = op.schema->returns()[i].type();
    node->output(i)->set_type(declared->hasFreeVariables() ? results.at(i).type() : declared);
  }
  node->set_op(op);
  node->append_to(graph.body());
  std::vector<Value*> returned(node->outputs().begin(), node->outputs().end());
  if (form == ProgramForm::kConstants && returned.size() == 1 && returned[0]->type()->str() == "Tensor[]") {
    Node* unpack = graph.create(prim::ListUnpack, {returned[0]}, results.at(0).toListRef().size());
    unpack->append_to(graph.body());
    returned.assign(unpack->outputs().begin(), unpack->outputs().end());
    for (Value* each : returned) {
      each->set_type(c10::TensorType::get());
    }
  }
  for (Value* each : returned) {
    const bool is_tensor = each->type()->kind() == c10::TypeKind::TensorType;
    graph.add_output(form == ProgramForm::kConstants && is_tensor ? pointwise(graph, each) : each);
  }
  oracle_ = std::make_unique<Oracle>(graph);
}

TwinProgram::~TwinProgram() = default;

std::string TwinProgram::signature(const Op& op, const std::vector<c10::IValue>& values, ProgramForm form) {
  std::ostringstream text;
  for (size_t i = 0; i < values.size(); ++i) {
    if (form == ProgramForm::kGiven) {
      text << input_type(op.schema->arguments()[i], values[i])->str() << " ";
      text << (values[i].isIntList() ? std::to_string(values[i].toListRef().size()) + " " : "");
    } else if (values[i].isTensor()) {
      text << "Tensor ";
    } else if (holds_tensor(values[i])) {
      text << values[i].toListRef().size() << " ";
    } else {
      text << values[i] << " ";
    }
  }
  return text.str();
}

std::unique_ptr<GraphExecutor> TwinProgram::executor(CompileMode mode) const {
  return std::make_unique<GraphExecutor>(graph_->clone(), "twin", Options().compile(mode));
}

std::vector<c10::IValue> TwinProgram::inputs_of(const std::vector<c10::IValue>& values) const {
  std::vector<c10::IValue> inputs;
  for (const c10::IValue& value : values) {
    if (form_ == ProgramForm::kGiven && value.isIntList()) {
      const auto elements = value.toListRef();
      inputs.insert(inputs.end(), elements.begin(), elements.end());
    } else if (form_ == ProgramForm::kGiven || value.isTensor()) {
      inputs.push_back(value);
    } else if (holds_tensor(value)) {
      for (const c10::IValue& element : value.toListRef()) {
        if (element.isTensor()) {
          inputs.push_back(element);
        }
      }
    }
  }
  return inputs;
}

Outcome TwinProgram::run(GraphExecutor& executor, const std::vector<c10::IValue>& values) const {
  return outcome_of(inputs_of(values), [&](torch::jit::Stack& stack) { executor.run(stack); });
}

Outcome TwinProgram::run_libtorch(const std::vector<c10::IValue>& values) const {
  return outcome_of(inputs_of(values),
                    [&](torch::jit::Stack& stack) { torch::jit::InterpreterState(oracle_->code).run(stack); });
}

}  // namespace sconce::testing
