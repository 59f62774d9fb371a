#include "trace/traceable.h"

#include "trace/trace_tensor.h"

#include <ATen/ops/_local_scalar_dense.h>
#include <c10/core/GradMode.h>
#include <torch/csrc/jit/runtime/operator.h>

#include <algorithm>
#include <string_view>
#include <unordered_set>

namespace sconce {
namespace {

bool is_number_as_tensor(const c10::IValue& value) {
  return value.isTensor() && value.toTensor().defined() && value.toTensor().unsafeGetTensorImpl()->is_wrapped_number() &&
         TraceTensor::of(value.toTensor()) == nullptr;
}

// LibTorch's registry of TorchScript has a schema of its own for each operator, with plain integers.
const Op* record_of(const c10::OperatorName& name) {
  const auto registered = torch::jit::findOperatorFor(name);
  return registered == nullptr ? nullptr : &op_of(registered->schema());
}

// Returns the overload `Scalar` of an operator whose argument `index` is a tensor there and a number here; null if none is.
const Op* with_number(const c10::OperatorHandle& op, size_t index) {
  const Op* found = record_of({op.operator_name().name, "Scalar"});
  if (found == nullptr || found->schema->arguments().size() != op.schema().arguments().size()) {
    return nullptr;
  }
  return found->schema->arguments()[index].type()->kind() == c10::TypeKind::NumberType ? found : nullptr;
}

// Returns whether the call is of aten::index with positions. With a mask, the elements decide the size of the result.
bool indexes_by_position(const std::vector<c10::IValue>& arguments) {
  // TorchScript makes a list of tensors where none of them is optional.
  if (arguments.size() < 2 || !arguments[1].isList()) {
    return false;
  }
  const auto is_mask = [](const c10::IValue& index) {
    return index.isTensor() && (index.toTensor().scalar_type() == at::kBool || index.toTensor().scalar_type() == at::kByte);
  };
  const c10::ArrayRef<c10::IValue> indices = arguments[1].toListRef();
  return std::none_of(indices.begin(), indices.end(), is_mask);
}

// Returns whether the value is a tensor without strides, or a list with one.
bool has_sparse(const c10::IValue& value) {
  if (value.isTensor()) {
    return value.toTensor().defined() && value.toTensor().layout() != c10::kStrided;
  }
  if (!value.isList()) {
    return false;
  }
  const c10::ArrayRef<c10::IValue> elements = value.toListRef();
  return std::any_of(elements.begin(), elements.end(),
                     [](const c10::IValue& element) { return element.isTensor() && has_sparse(element); });
}

}  // namespace

std::string why_not_traceable(const c10::OperatorHandle& op, const std::vector<c10::IValue>& arguments) {
  const c10::FunctionSchema& schema = op.schema();
  const Op* const record = record_of(op.operator_name());
  if (record == nullptr) {
    return "TorchScript cannot call it";
  }
  if (op.hasTag(at::Tag::dynamic_output_shape) && !indexes_by_position(arguments)) {
    return "the sizes of its results depend on the elements of its operands";
  }
  if (schema.name() == "aten::set_") {
    return "it gives a tensor the memory of another";
  }
  // It returns the workspace of backward only in grad mode.
  if (schema.name() == "aten::_cudnn_rnn") {
    return "it keeps a workspace for backward only in grad mode, in which a plan does not run";
  }
  bool has_tensor = false;
  for (size_t i = 0; i < arguments.size(); ++i) {
    const c10::IValue& value = arguments[i];
    has_tensor = has_tensor || value.isTensor() || value.isTensorList();
    if (value.isGenerator() || value.isStream() || value.isStorage()) {
      return "its argument '" + schema.arguments()[i].name() + "' cannot be a constant of a graph";
    }
    if (has_sparse(value)) {
      return "its argument '" + schema.arguments()[i].name() +
             (value.isTensor() ? "' is a sparse tensor" : "' has a sparse tensor");
    }
  }
  for (const c10::Argument& result : schema.returns()) {
    const bool is_tensor = result.type()->isSubtypeOf(*c10::OptionalType::ofTensor()) ||
                           result.type()->isSubtypeOf(*c10::ListType::ofTensors());
    if (!is_tensor && has_tensor && (record->reads == Reads::kElements || record->reads_beyond_form)) {
      return "it reads a number from a tensor, on which what follows may depend";
    }
  }
  return {};
}

bool has_sizes_by_elements(const Op& op) {
  return op.has_tag(at::Tag::dynamic_output_shape) && op.schema->name() != "aten::index";
}

bool finds_indices(const Op& op) {
  static const std::unordered_set<std::string_view> names = {"aten::nonzero", "aten::nonzero_numpy", "aten::argwhere"};
  return op.schema != nullptr && names.contains(op.schema->name());
}

bool reads_number(const c10::OperatorHandle& op) {
  static const std::unordered_set<std::string_view> names = {"aten::_local_scalar_dense", "aten::equal", "aten::is_nonzero"};
  return names.count(op.operator_name().name) != 0;
}

// Whether oneDNN computes an LSTM.
bool counts_to_see_whether_empty(const c10::OperatorHandle& op) { return op.operator_name().name == "aten::lstm"; }

bool is_recorded_by_autograd(c10::ArrayRef<c10::IValue> arguments) {
  bool requires_grad = false;
  for (const c10::IValue& argument : arguments) {
    argument.visit([&](const c10::IValue& part) {
      requires_grad = requires_grad || (part.isTensor() && part.toTensor().defined() && part.toTensor().requires_grad());
      return false;
    });
  }
  return requires_grad && c10::GradMode::is_enabled();
}

bool detaches_in_place(const c10::OperatorHandle& op) { return op.operator_name().name == "aten::detach_"; }

bool fills_in_place(const c10::OperatorHandle& op) { return op.operator_name().name == "aten::fill_"; }

TracedCall traced_call(const c10::OperatorHandle& op, const std::vector<c10::IValue>& arguments) {
  const auto number = std::find_if(arguments.begin(), arguments.end(), is_number_as_tensor);
  if (number != arguments.end()) {
    if (const Op* found = with_number(op, static_cast<size_t>(number - arguments.begin()))) {
      TracedCall call{found, arguments};
      const c10::Scalar scalar = at::_local_scalar_dense(number->toTensor());
      call.arguments[static_cast<size_t>(number - arguments.begin())] = c10::IValue(scalar);
      return call;
    }
  }
  return {record_of(op.operator_name()), arguments};
}

const Op* view_in_place_of(const Op& op) {
  static const std::unordered_set<std::string_view> names = {"aten::t_", "aten::transpose_", "aten::squeeze_",
                                                             "aten::unsqueeze_", "aten::as_strided_"};
  const std::string name = op.kind.toQualString();
  if (!names.contains(name)) {
    return nullptr;
  }
  const bool has_other_overload = name == "aten::transpose_";
  return record_of({name.substr(0, name.size() - 1), has_other_overload ? "int" : op.schema->overload_name()});
}

bool overwrites_argument(const Op& op, size_t index) {
  const bool is_out = op.is_marked_as_written(index) && op.schema->arguments()[index].is_out();
  return is_out || (index == 0 && op.overwrites);
}

}  // namespace sconce
