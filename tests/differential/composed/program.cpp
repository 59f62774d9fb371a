#include "tests/differential/composed/program.h"

#include <ATen/ATen.h>
#include <ATen/CPUGeneratorImpl.h>
#include <torch/csrc/jit/frontend/resolver.h>
#include <torch/csrc/jit/frontend/sugared_value.h>

#include <algorithm>
#include <sstream>

namespace sconce::testing::composed {
namespace {

class Operators final : public torch::jit::SugaredValue {
 public:
  explicit Operators(bool is_torch) : is_torch_(is_torch) {}
  std::string kind() const override { return "operators"; }
  std::shared_ptr<SugaredValue> attr(const torch::jit::SourceRange& location, torch::jit::GraphFunction& function,
                                     const std::string& field) override {
    if (is_torch_ && field == "ops") {
      return std::make_shared<Operators>(false);
    }
    return is_torch_ ? torch::jit::BuiltinModule("aten").attr(location, function, field)
                     : std::make_shared<torch::jit::BuiltinModule>(field);
  }

 private:
  const bool is_torch_;
};

struct OperatorResolver final : torch::jit::Resolver {
  std::shared_ptr<torch::jit::SugaredValue> resolveValue(const std::string& name, torch::jit::GraphFunction& /*function*/,
                                                         const torch::jit::SourceRange& /*location*/) override {
    return name == "torch" ? std::make_shared<Operators>(true) : nullptr;
  }
};

// The same as `make_tensor` of the Python file.
at::Tensor contents_of(const std::vector<int64_t>& sizes, at::ScalarType dtype, uint64_t seed) {
  at::Generator generator = at::detail::createCPUGenerator(seed);
  if (dtype == at::kBool) {
    return at::rand(sizes, generator, at::kDouble).gt(0.5);
  }
  if (dtype == at::kLong) {
    return at::randint(0, 4, sizes, generator, at::kLong);
  }
  return (at::rand(sizes, generator, at::kDouble) * 4 - 2).to(dtype);
}

at::Tensor tensor_of(const Argument& argument, const std::vector<c10::IValue>& before) {
  if (argument.alias_of >= 0) {
    const at::Tensor base = before[static_cast<size_t>(argument.alias_of)].toTensor();
    return base.dim() > 0 ? base.transpose(0, base.dim() - 1) : base.view({1});
  }
  std::vector<int64_t> sizes = argument.sizes;
  at::Tensor made;
  switch (argument.form) {
    case Form::kContiguous: made = contents_of(sizes, argument.dtype, argument.seed); break;
    case Form::kTransposed:
      std::reverse(sizes.begin(), sizes.end());
      made = contents_of(sizes, argument.dtype, argument.seed);
      made = made.dim() == 2  ? made.t()
             : made.dim() < 2 ? made
                              : made.permute([&] {
                                  std::vector<int64_t> order;
                                  for (int64_t dim = made.dim(); dim-- > 0;) {
                                    order.push_back(dim);
                                  }
                                  return order;
                                }());
      break;
    case Form::kExpanded:
      if (!sizes.empty()) {
        sizes[0] = 1;
      }
      made = contents_of(sizes, argument.dtype, argument.seed).expand(argument.sizes);
      break;
    case Form::kStrided:
      if (!sizes.empty()) {
        sizes.back() *= 2;
      }
      made = contents_of(sizes, argument.dtype, argument.seed);
      made = sizes.empty() ? made : made.slice(-1, 0, std::nullopt, 2);
      break;
  }
  if (argument.role == Role::kPlain || !made.is_floating_point()) {
    return made;
  }
  made.requires_grad_(true);
  return argument.role == Role::kLeaf ? made : made.mul(1);
}

c10::IValue value_of(const Input& input, const Argument& argument, const std::vector<c10::IValue>& before) {
  if (argument.is_none) {
    return {};
  }
  if (input.type == "int") {
    return static_cast<int64_t>(argument.number);
  }
  if (input.type == "float") {
    return argument.number;
  }
  if (input.type == "bool") {
    return argument.number != 0;
  }
  return tensor_of(argument, before);
}

std::string indented(size_t indent) { return std::string(4 * indent, ' '); }

std::string joined_names(const std::vector<std::string>& names) {
  std::string text;
  for (const std::string& name : names) {
    text += name + ", ";
  }
  return text;
}

const char* name_of(Form form) {
  switch (form) {
    case Form::kContiguous: return "contiguous";
    case Form::kTransposed: return "transposed";
    case Form::kExpanded: return "expanded";
    case Form::kStrided: return "strided";
  }
  return "";
}

std::string python_of(const Input& input, const Argument& argument) {
  std::ostringstream text;
  if (argument.is_none) {
    return "None";
  }
  if (input.type == "int") {
    text << static_cast<int64_t>(argument.number);
  } else if (input.type == "float") {
    text << argument.number << (argument.number == static_cast<int64_t>(argument.number) ? ".0" : "");
  } else if (input.type == "bool") {
    text << (argument.number != 0 ? "True" : "False");
  } else if (argument.alias_of >= 0) {
    text << "alias(a[" << argument.alias_of << "])";
  } else {
    text << "tensor(" << c10::IValue(argument.sizes) << ", torch."
         << (argument.dtype == at::kBool    ? "bool"
             : argument.dtype == at::kLong  ? "int64"
             : argument.dtype == at::kFloat ? "float32"
                                            : "float64")
         << ", " << argument.seed << ", \"" << name_of(argument.form) << "\", "
         << (argument.role == Role::kPlain  ? "\"plain\""
             : argument.role == Role::kLeaf ? "\"leaf\""
                                            : "\"computed\"")
         << ")";
  }
  return text.str();
}

constexpr const char* kPythonHead = R"(import torch
from typing import List, Optional
from torch import Tensor


def contents(sizes, dtype, seed):
    g = torch.Generator().manual_seed(seed)
    if dtype == torch.bool:
        return torch.rand(sizes, generator=g, dtype=torch.float64) > 0.5
    if dtype == torch.int64:
        return torch.randint(0, 4, sizes, generator=g)
    return (torch.rand(sizes, generator=g, dtype=torch.float64) * 4 - 2).to(dtype)


def tensor(sizes, dtype, seed, form, role):
    if form == "transposed":
        t = contents(sizes[::-1], dtype, seed)
        t = t.permute(list(range(t.dim()))[::-1])
    elif form == "expanded":
        t = contents([1] * min(1, len(sizes)) + sizes[1:], dtype, seed).expand(sizes)
    elif form == "strided" and sizes:
        t = contents(sizes[:-1] + [2 * sizes[-1]], dtype, seed)[..., ::2]
    else:
        t = contents(sizes, dtype, seed)
    if role == "plain" or not t.is_floating_point():
        return t
    t.requires_grad_(True)
    return t if role == "leaf" else t.mul(1)


def alias(base):
    return base.transpose(0, -1) if base.dim() > 0 else base.view(1)


)";

}  // namespace

std::shared_ptr<torch::jit::Resolver> operator_resolver() { return std::make_shared<OperatorResolver>(); }

std::string text_of(const Lines& lines, size_t indent) {
  std::string text;
  for (const Line& line : lines) {
    text += indented(indent) + line.text + "\n" + text_of(line.body, indent + 1);
  }
  return text;
}

std::string source_of(const Program& program) {
  std::string head = "def forward(self";
  std::string attributes;
  for (const Input& input : program.inputs) {
    if (input.is_attribute) {
      attributes += "    " + input.name + " = self." + input.name + "\n";
    } else {
      head += ", " + input.name + ": " + input.type;
    }
  }
  return head + "):\n" + attributes + text_of(program.lines, 1) + "    return (" + joined_names(program.outputs) + ")\n";
}

std::string python_of(const Program& program) {
  std::string text = kPythonHead;
  text += "source = '''\n" + source_of(program) + "'''\n\nmodule = torch.nn.Module()\ncalls = []\n";
  for (const Call& call : program.calls) {
    text += "a = []\n";
    for (size_t i = 0; i < program.inputs.size(); ++i) {
      text += "a.append(" + python_of(program.inputs[i], call.arguments[i]) + ")\n";
      if (program.inputs[i].is_attribute && &call == program.calls.data()) {
        const bool leaf = call.arguments[i].role == Role::kLeaf;
        text += leaf ? "module." + program.inputs[i].name + " = torch.nn.Parameter(a[-1].detach())\n"
                     : "module.register_buffer(\"" + program.inputs[i].name + "\", a[-1])\n";
      }
    }
    text +=
        "calls.append((" + std::string(call.records_gradients ? "True" : "False") + ", " + std::to_string(call.seed) + ", [";
    for (const bool asked : call.asked) {
      text += asked ? "1, " : "0, ";
    }
    text += std::string("], ") + (call.second_order ? "True" : "False") + ", [";
    for (size_t i = 0; i < program.inputs.size(); ++i) {
      text += program.inputs[i].is_attribute ? "" : "a[" + std::to_string(i) + "], ";
    }
    text += "]))\n";
  }
  return text + R"(
torch._C._set_graph_executor_optimize(False)
module = torch.jit.script(module)
module.define(source)
module.save("composed.pt")
torch.save(tuple(calls[0][4]), "composed.inputs.pt")
for records, seed, asked, second, arguments in calls:
    torch.manual_seed(seed)
    with torch.set_grad_enabled(records):
        try:
            print(module(*arguments))
        except Exception as error:
            print("raises", str(error).splitlines()[-1])
)";
}

std::vector<c10::IValue> values_of(const std::vector<Input>& inputs, const Call& call) {
  std::vector<c10::IValue> values;
  for (size_t i = 0; i < inputs.size(); ++i) {
    values.push_back(value_of(inputs[i], call.arguments[i], values));
  }
  return values;
}

std::vector<c10::IValue> arguments_of(const Program& program, const Call& call) {
  const std::vector<c10::IValue> values = values_of(program.inputs, call);
  std::vector<c10::IValue> arguments;
  for (size_t i = 0; i < values.size(); ++i) {
    if (!program.inputs[i].is_attribute) {
      arguments.push_back(values[i]);
    }
  }
  return arguments;
}

torch::jit::Module module_of(const Program& program) {
  torch::jit::Module module("Composed");
  const std::vector<c10::IValue> values = values_of(program.inputs, program.calls.at(0));
  for (size_t i = 0; i < program.inputs.size(); ++i) {
    if (program.inputs[i].is_attribute) {
      const at::Tensor tensor = values[i].toTensor();
      if (tensor.requires_grad()) {
        module.register_parameter(program.inputs[i].name, tensor, /*is_buffer=*/false);
      } else {
        module.register_buffer(program.inputs[i].name, tensor);
      }
    }
  }
  module.define(source_of(program), operator_resolver());
  return module;
}

}  // namespace sconce::testing::composed
