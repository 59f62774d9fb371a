// How a tracer writes the operands of a call, and which calls of libraries it records whole.
#include "base/call_watch.h"
#include "ir/schema_match.h"
#include "ops/foreign.h"
#include "trace/traceable.h"
#include "trace/tracer.h"

#include <ATen/core/jit_type.h>
#include <c10/core/GradMode.h>

#include <algorithm>

namespace sconce {
namespace {

// Returns whether the value is a list with a tensor among its elements, whatever the list's type.
bool has_tensors(const c10::IValue& value) {
  if (!value.isList()) {
    return false;
  }
  const c10::ArrayRef<c10::IValue> elements = value.toListRef();
  return std::any_of(elements.begin(), elements.end(), [](const c10::IValue& element) { return element.isTensor(); });
}

c10::ArrayRef<c10::IValue> arguments_of(const c10::OperatorHandle& op, const torch::jit::Stack& stack) {
  const size_t count = op.schema().arguments().size();
  return c10::ArrayRef<c10::IValue>(stack).slice(stack.size() - count, count);
}

}  // namespace

bool Tracer::run_whole(const c10::OperatorHandle& op, torch::jit::Stack& stack) {
  const c10::FunctionSchema& schema = op.schema();
  const auto first = stack.end() - static_cast<std::ptrdiff_t>(schema.arguments().size());
  if (detaches_in_place(op)) {
    note_detached(first->toTensor());
  }
  if (!may_do_more_than_compute(op)) {
    return false;
  }
  CallWatch::note_kept(call_of_library(op));
  if (is_recorded_by_autograd(arguments_of(op, stack))) {
    if (op.hasKernelForDispatchKey(c10::DispatchKey::CompositeImplicitAutograd)) {
      refuse("it " + call_of_library(op) + ", which autograd differentiates");
    }
    return false;  // its kernel for the device is called below autograd
  }
  std::vector<at::Tensor> written;
  for (size_t i = 0; i < schema.arguments().size(); ++i) {
    const c10::AliasInfo* mark = schema.arguments()[i].alias_info();
    if (mark != nullptr && mark->isWrite() && first[static_cast<std::ptrdiff_t>(i)].isTensor()) {
      written.push_back(first[static_cast<std::ptrdiff_t>(i)].toTensor());
    }
  }
  run(op, stack);
  std::ranges::for_each(written, [](const at::Tensor& tensor) { tensor.unsafeGetTensorImpl()->bump_version(); });
  const auto results = stack.end() - static_cast<std::ptrdiff_t>(schema.returns().size());
  if (std::any_of(results, stack.end(),
                  [](const c10::IValue& value) { return !value.isTensor() && !value.isTensorList(); })) {
    refuse("it " + call_of_library(op) + " that returns no tensor");
  }
  return true;
}

bool Tracer::is_differentiated_within(const c10::OperatorHandle& op, const torch::jit::Stack& stack) {
  constexpr c10::DispatchKeySet kOfAutograd =
      c10::autograd_dispatch_keyset | c10::DispatchKeySet(c10::DispatchKeySet::RAW, c10::full_backend_mask);
  if (!may_do_more_than_compute(op) || !is_recorded_by_autograd(arguments_of(op, stack)) ||
      c10::impl::tls_is_dispatch_keyset_excluded(c10::autograd_dispatch_keyset) ||
      op.hasKernelForDispatchKey(c10::DispatchKey::Autograd) || op.hasKernelForAnyDispatchKey(kOfAutograd)) {
    return false;
  }
  refuse("it " + call_of_library(op) + " without a kernel for autograd");
  return true;
}

c10::IValue without_trace(const c10::IValue& value) {
  if (value.isTensor()) {
    return real_of(value.toTensor());
  }
  if (value.isSymInt()) {
    return SymbolicSizes::value_of(value.toSymInt());
  }
  if (value.isSymFloat()) {
    return SymbolicSizes::value_of(value.toSymFloat());
  }
  if (value.isSymIntList()) {
    std::vector<int64_t> numbers;
    for (const c10::SymInt& number : value.toSymIntVector()) {
      numbers.push_back(SymbolicSizes::value_of(number));
    }
    return numbers;
  }
  if (value.isTensorList()) {
    c10::List<at::Tensor> reals;
    for (const at::Tensor& element : value.toTensorVector()) {
      reals.push_back(real_of(element));
    }
    return reals;
  }
  if (!has_tensors(value)) {
    return value;
  }
  const c10::List<c10::IValue> list = value.toList();
  c10::impl::GenericList reals(list.elementType());
  for (const c10::IValue& element : list) {
    reals.push_back(without_trace(element));
  }
  return reals;
}

// C++ code may have filled memory without contents. The call may write it.
void Tracer::note_contents(const std::vector<c10::IValue>& given) {
  contents_.clear();
  if (without_contents_.empty()) {
    return;
  }
  const PausedTracing paused;
  const auto note = [this](const at::Tensor& tensor) {
    const TraceTensor* traced = TraceTensor::of(tensor);
    if (traced != nullptr && traced->tracer() == number_ && without_contents_.count(traced->value()) != 0) {
      contents_.emplace(traced->value(), traced->real().clone());
    }
  };
  for (const c10::IValue& value : given) {
    if (value.isTensor()) {
      note(value.toTensor());
    } else if (has_tensors(value)) {
      for (const c10::IValue& element : value.toListRef()) {
        if (element.isTensor()) {
          note(element.toTensor());
        }
      }
    }
  }
}

// C++ code has filled the tensor: what it holds now is a constant.
void Tracer::keep_contents_of(const at::Tensor& tensor) {
  if (shapes_ && shapes_->geometry_of(*value_of(tensor), sconce::real_of(tensor)) != nullptr) {
    refuse("C++ code fills a tensor whose sizes change");
  }
  const PausedTracing paused;
  const auto before = contents_.find(value_of(tensor));
  const at::Tensor contents = before != contents_.end() ? before->second : sconce::real_of(tensor).clone();
  const std::vector<Value*> operands = {value_of(tensor), operand(contents), operand(false)};
  Node* copy = graph_->create(aten::copy_, operands);
  resolve(*copy);
  copy->append_to(graph_->body());
}

void Tracer::keep_contents(const std::vector<at::Tensor>& results) {
  for (size_t i = 0; i < results.size() && !refusal_; ++i) {
    operand(results[i]);
  }
}

void Tracer::note_data(TraceTensor& copy) {
  // Formulas of LibTorch take `.data()` of what nodes have saved, where no gradient is asked for. C++ code may fill memory
  // without contents through it.
  if (refusal_ || is_saved_ || copy.value() == nullptr || copy.tracer() != number_ ||
      without_contents_.count(copy.value()) != 0) {
    return;
  }
  copy.set_value(detached(*copy.value(), copy.real()));
}

Value* Tracer::detached(Value& value, const at::Tensor& real) {
  Node* detach = graph_->create(aten::detach, {&value});
  resolve(*detach);
  detach->append_to(graph_->body());
  if (shapes_) {
    shapes_->derive(*detach, {real}, {real});
  }
  note_facts(detach->output(), real);
  return detach->output();
}

// Returns whether autograd would record a read of the tensor in a run of the graph that it has not recorded in the trace.
bool Tracer::reads_without_history(const at::Tensor& tensor) const {
  if (tensor.requires_grad()) {
    return detaches_ && !c10::GradMode::is_enabled();
  }
  return std::ranges::any_of(unmarked_, [&](const at::Tensor& argument) { return argument.is_same(tensor); });
}

Value* Tracer::operand(const c10::IValue& value, bool is_overwritten) {
  if (value.isTensor() && value.toTensor().defined()) {
    Value* found = value_of(value.toTensor());
    if (without_contents_.erase(found) != 0) {
      if (!is_overwritten) {
        keep_contents_of(value.toTensor());
      }
      TraceTensor::of(value.toTensor())->hide_memory();
    }
    return reads_without_history(value.toTensor()) ? detached(*found, sconce::real_of(value.toTensor())) : found;
  }
  if (value.isSymInt()) {
    return size_operand(SymbolicSizes::dim_of(value.toSymInt()), SymbolicSizes::value_of(value.toSymInt()));
  }
  if (value.isSymFloat()) {
    Value* written = shapes_ ? shapes_->write(*graph_, *SymbolicSizes::float_of(value.toSymFloat())) : nullptr;
    return written != nullptr ? written : unknown_number(SymbolicSizes::value_of(value.toSymFloat()));
  }
  std::vector<Value*> elements;
  if (value.isSymIntList()) {
    for (const c10::SymInt& number : value.toSymIntVector()) {
      elements.push_back(operand(number));
    }
  } else if (value.isTensorList()) {
    for (const at::Tensor& element : value.toTensorVector()) {
      elements.push_back(operand(element));
    }
  } else if (has_tensors(value)) {
    for (const c10::IValue& element : value.toListRef()) {
      elements.push_back(operand(element));
    }
  } else {
    const bool is_none = value.isNone() || value.isTensor();
    return graph_->insert_constant(is_none ? c10::IValue() : value, graph_->body().return_node());
  }
  Node* list = graph_->create(prim::ListConstruct, elements, 0);
  list->append_to(graph_->body());
  return list->add_output(value.isSymIntList()   ? c10::ListType::ofInts()
                          : value.isTensorList() ? c10::ListType::ofTensors()
                                                 : c10::ListType::ofOptionalTensors());
}

Value* Tracer::size_operand(Dim dim, int64_t value) {
  Value* written = shapes_ ? shapes_->write(*graph_, dim) : nullptr;
  return written != nullptr ? written : unknown_number(value);
}

// Returns this run's number for one that cannot be computed.
Value* Tracer::unknown_number(const c10::IValue& value) {
  if (shapes_) {
    shapes_->sizes().refuse_unknown();
  }
  return graph_->insert_constant(value, graph_->body().return_node());
}

}  // namespace sconce
