#include "autodiff/gradient_sums.h"

#include "autodiff/build_nodes.h"

#include <ATen/core/jit_type.h>

namespace sconce {

Gradient GradientSums::at(const Value* value) const {
  const auto found = sums_.find(value);
  return found == sums_.end() ? Gradient{} : found->second;
}

void GradientSums::add(Value* value, Gradient gradient) {
  const bool is_result = results_.count(value) != 0;
  Gradient& sum = sums_[value];
  const bool is_first = sum.value == nullptr;
  const bool is_partial = gradient.is_there != nullptr && !gradient.is_filled && !is_first && sum.is_there == nullptr;
  if (!is_partial) {
    gradient = is_result ? undefined_form(gradient) : filled_form(value, gradient);
  }
  if (is_first) {
    sum = gradient;
    return;
  }
  if (gradient.is_filled && sum.is_filled) {
    Value* one = end_->graph().insert_constant(1, end_);
    sum.value = insert_node(aten::add, {sum.value, gradient.value, one}, end_);
  } else {
    const bool is_defined = sum.is_there == nullptr || gradient.is_there == nullptr;
    sum.value = insert_sum_of_gradients(*value, sum.value, gradient.value, is_defined, end_);
  }
  sum.value->node()->set_location(value->node()->location());
  sum.is_filled = sum.is_filled || gradient.is_filled;
  sum.is_there = either(sum.is_there, gradient.is_there);
}

void GradientSums::add_if_defined(Value* value, Value* gradient) {
  add(value, {gradient, insert_node(prim::AutogradAnyNonZero, {gradient}, end_, c10::BoolType::get()), /*is_filled=*/false});
}

Value* GradientSums::either(Value* one, Value* other) {
  if (one == nullptr || other == nullptr) {
    return nullptr;
  }
  if (one == other) {
    return one;
  }
  return insert_node(aten::__or__, {one, other}, end_, c10::BoolType::get());
}

Gradient GradientSums::undefined_form(Gradient gradient) {
  if (gradient.is_there != nullptr && gradient.is_filled) {
    gradient.value = insert_choice(
        gradient.is_there, gradient.value, [](Node* position) { return insert_node(prim::AutogradZero, {}, position); },
        end_);
    gradient.is_filled = false;
  }
  return gradient;
}

Gradient GradientSums::filled_form(Value* value, Gradient gradient) {
  if (gradient.is_there != nullptr && !gradient.is_filled) {
    gradient.value = insert_choice(
        gradient.is_there, gradient.value, [value](Node* position) { return insert_zeros(value, position); }, end_);
    gradient.is_filled = true;
  }
  return gradient;
}

}  // namespace sconce
