// Which calls of operators a tracer can write down, and as what.
#pragma once

#include "ops/op.h"

#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/core/ivalue.h>

#include <string>
#include <vector>

namespace sconce {

// Returns why a later run could not repeat the call, or an empty string.
std::string why_not_traceable(const c10::OperatorHandle& op, const std::vector<c10::IValue>& arguments);

// Returns whether the sizes of the operator's results depend on the elements of its operands in every call. Those of
// aten::index do where an index is a mask.
bool has_sizes_by_elements(const Op& op);

// Returns whether the operator does nothing but find the indices of elements, as aten::nonzero does.
bool finds_indices(const Op& op);

// Returns whether the operator tells a number of the elements of tensors, and does nothing else.
bool reads_number(const c10::OperatorHandle& op);

// Returns whether LibTorch's function for the operator, which is composed of others, counts the elements of its operands
// only to see whether there are any.
bool counts_to_see_whether_empty(const c10::OperatorHandle& op);

// Returns whether autograd records a call with these arguments.
bool is_recorded_by_autograd(c10::ArrayRef<c10::IValue> arguments);

// Returns whether the operator detaches its argument in place. Autograd's kernel does all of that, so no tracer runs it.
bool detaches_in_place(const c10::OperatorHandle& op);

// Returns whether the operator fills its first argument.
bool fills_in_place(const c10::OperatorHandle& op);

// The operator and arguments that a node for a call has.
struct TracedCall {
  const Op* op;
  std::vector<c10::IValue> arguments;
};

// Returns the call itself, or the call that says the same with a number in place of the tensor that LibTorch made of it:
// `x * 2` reaches the tracer as mul.Tensor, and says mul.Scalar. Only a number promotes dtypes as it does.
TracedCall traced_call(const c10::OperatorHandle& op, const std::vector<c10::IValue>& arguments);

// Returns the operator that returns as a view what an operator such as aten::transpose_ makes of its argument; null if the
// operator is none of these.
const Op* view_in_place_of(const Op& op);

// Returns whether the operator replaces all elements of its argument `index` and reads none, such as aten::fill_.
bool overwrites_argument(const Op& op, size_t index);

}  // namespace sconce
