// Sizes implied by conditions, and gradients that depend on whether others are defined, for AbstractEvaluator.
//
//   %differ : bool = aten::ne(%n, %eight)
//   prim::If(%differ)
//     block0():
//       prim::RaiseException(…)      no run comes back from here
//     …
//                                    %n is 8 from here on, and so is every size that is %n
#include "ir/constant_operands.h"
#include "shapes/abstract_evaluator.h"

#include <algorithm>
#include <utility>

namespace sconce {

// Joins two integers: the one that a comparison of integers chooses, or else a value that covers both.
AbstractValue AbstractEvaluator::join(const Value& condition, const AbstractValue& if_true, const AbstractValue& if_false) {
  const Node& test = *condition.node();
  if (test.inputs().size() != 2 || !if_true.is_integer() || !if_false.is_integer() || !now(*test.input(0)).is_integer() ||
      !now(*test.input(1)).is_integer()) {
    return heap_.join(if_true, if_false);
  }
  const Dim x = now(*test.input(0)).as_integer();
  const Dim y = now(*test.input(1)).as_integer();
  const Dim a = if_true.as_integer();
  const Dim b = if_false.as_integer();
  switch (test.opcode()) {
    case Opcode::kLess: return AbstractValue::integer(arithmetic_.if_less(x, y, a, b));
    case Opcode::kGreaterEqual: return AbstractValue::integer(arithmetic_.if_less(x, y, b, a));
    case Opcode::kGreater: return AbstractValue::integer(arithmetic_.if_less(y, x, a, b));
    case Opcode::kLessEqual: return AbstractValue::integer(arithmetic_.if_less(y, x, b, a));
    case Opcode::kEqual: return AbstractValue::integer(arithmetic_.if_equal(x, y, a, b));
    case Opcode::kNotEqual: return AbstractValue::integer(arithmetic_.if_equal(x, y, b, a));
    default: return heap_.join(if_true, if_false);
  }
}

// The results are what the block computes, or undefined tensors, for which facts say nothing.
void AbstractEvaluator::run_gradient(const Node& node) {
  heap_.begin_branch();
  const SizeArithmetic::Replacements constraints_before = path_constraints_;
  const bool completes = run_block(*node.block(0));
  path_constraints_ = constraints_before;
  heap_.apply_either(heap_.end_branch(), {});
  if (!completes) {
    set_unknown(node);
    return;
  }
  const AbstractValues returns = returns_of(*node.block(0));
  for (size_t i = 0; i < returns.size(); ++i) {
    set(node.output(i), returns[i]);
  }
}

// Adds the constraints on given symbols that follow if the condition is true, or false.
void AbstractEvaluator::assume(const Value& condition, bool holds) {
  const Node& test = *condition.node();
  switch (test.opcode()) {
    case Opcode::kNot: assume(*test.input(0), !holds); return;
    case Opcode::kEqual:
    case Opcode::kNotEqual:
      if (const auto compared = compared_.find(&test); holds == (test.opcode() == Opcode::kEqual)) {
        const bool is_of_lists = compared != compared_.end();
        assume_equal(with(path_constraints_, is_of_lists ? compared->second.first : at(*test.input(0))),
                     with(path_constraints_, is_of_lists ? compared->second.second : at(*test.input(1))));
      }
      return;
    case Opcode::kIf: {
      // `a and b` is `b if a else False`, `a or b` is `True if a else b`. If the first is true, or the second is false, the
      // same holds for both operands.
      const auto output =
          static_cast<size_t>(std::find(test.outputs().begin(), test.outputs().end(), &condition) - test.outputs().begin());
      const Value& other = *test.block(holds ? 1 : 0)->returns()[output];
      if (constant_bool(other) == !holds) {
        assume(*test.input(0), holds);
        assume(*test.block(holds ? 0 : 1)->returns()[output], holds);
      }
      return;
    }
    default: return;
  }
}

// Assumes that two integers, or two lists of equal length, are equal.
void AbstractEvaluator::assume_equal(const AbstractValue& one, const AbstractValue& other) {
  const AbstractValues* elements = one.as_sequence();
  const AbstractValues* others = other.as_sequence();
  for (size_t i = 0; elements != nullptr && others != nullptr && elements->size() == others->size() && i < elements->size();
       ++i) {
    assume_equal((*elements)[i], (*others)[i]);
  }
  const Dim a = one.as_integer();
  const Dim b = other.as_integer();
  if (a == b || a.is_unknown() || b.is_unknown() || (!arithmetic_.is_given(a) && !arithmetic_.is_given(b))) {
    return;
  }
  Dim goes = a;
  Dim stays = b;
  if (!arithmetic_.is_given(a) || (arithmetic_.is_given(b) && b.value() > a.value())) {
    std::swap(goes, stays);
  }
  const SizeArithmetic::Replacements replacement = {{goes.value(), stays}};
  if (arithmetic_.replaced(stays, replacement) != stays) {
    return;  // the symbol would depend on itself
  }
  for (auto& [symbol, size] : path_constraints_) {
    size = arithmetic_.replaced(size, replacement);
  }
  path_constraints_.emplace(goes.value(), stays);
}

bool AbstractEvaluator::is_refinement_of(const AbstractValue& special, const AbstractValue& general,
                                         const SizeArithmetic::Replacements& learnt) const {
  if (special == general) {
    return true;
  }
  // A size that becomes unknown under the constraint is not a refinement.
  const auto is_less_known = [](const auto& dims, const auto& others) {
    for (size_t i = 0; dims && i < dims->size(); ++i) {
      if ((*dims)[i].is_unknown() && !(*others)[i].is_unknown()) {
        return true;
      }
    }
    return false;
  };
  if (!(with(learnt, general) == special)) {
    return false;
  }
  const TensorFacts* facts = special.as_tensor();
  return facts == nullptr ? special.is_integer() && !special.as_integer().is_unknown()
                          : !is_less_known(facts->sizes, general.as_tensor()->sizes) &&
                                !is_less_known(facts->strides, general.as_tensor()->strides);
}

// Returns a value, derived before, under new constraints.
AbstractValue AbstractEvaluator::with(const SizeArithmetic::Replacements& learnt, const AbstractValue& value) const {
  if (learnt.empty()) {
    return value;
  }
  const auto each = [&](AbstractValues values) {
    for (AbstractValue& element : values) {
      element = with(learnt, element);
    }
    return values;
  };
  if (value.is_integer()) {
    return AbstractValue::integer(arithmetic_.replaced(value.as_integer(), learnt));
  }
  if (value.as_tensor() != nullptr) {
    TensorFacts facts = *value.as_tensor();
    for (auto* dims : {&facts.sizes, &facts.strides}) {
      for (size_t i = 0; *dims && i < (*dims)->size(); ++i) {
        (**dims)[i] = arithmetic_.replaced((**dims)[i], learnt);
      }
    }
    return AbstractValue::tensor(std::move(facts));
  }
  if (const AbstractValues* elements = value.as_sequence()) {
    return AbstractValue::sequence(each(*elements));
  }
  if (const AbstractMapping* mapping = value.as_mapping()) {
    return AbstractValue::mapping(mapping->keys, each(mapping->values));
  }
  return value;
}

}  // namespace sconce
