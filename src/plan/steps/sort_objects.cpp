#include "plan/steps/sort_objects.h"

#include "plan/steps/call_step.h"

#include <ATen/core/class_type.h>
#include <ATen/core/function.h>
#include <ATen/core/ivalue.h>
#include <ATen/core/jit_type.h>

#include <algorithm>

namespace sconce {
namespace {

bool holds_objects(const c10::TypePtr& type) {
  if (type->kind() == c10::TypeKind::ClassType) {
    return true;
  }
  const auto tuple = type->cast<c10::TupleType>();
  return tuple && std::any_of(tuple->elements().begin(), tuple->elements().end(), holds_objects);
}

class LessThan {
 public:
  explicit LessThan(Callees& callees) : callees_(callees) {}

  bool operator()(const c10::IValue& a, const c10::IValue& b) const {
    if (a.isObject()) {
      return is_less_object(a, b);
    }
    if (a.isTuple()) {
      return is_less_tuple(a.toTupleRef().elements(), b.toTupleRef().elements());
    }
    return c10::getLessThanComparator(a)(a, b);
  }

 private:
  bool is_less_object(const c10::IValue& a, const c10::IValue& b) const {
    if (a.is(b)) {
      return false;  // whatever __lt__ returns: an order must be strict
    }
    torch::jit::Function* function = a.toObjectRef().type()->findMethod("__lt__");
    TORCH_CHECK(function != nullptr, "a list of ", a.toObjectRef().type()->repr_str(),
                " cannot be sorted: define a __lt__ method of the class");
    torch::jit::Stack stack = {a, b};
    call(callees_.find(*function), stack);
    return stack.front().toBool();
  }

  template <typename Elements>
  bool is_less_tuple(const Elements& a, const Elements& b) const {
    for (size_t i = 0; i < a.size(); ++i) {
      if ((*this)(a[i], b[i])) {
        return true;
      }
      if (!(a[i] == b[i])) {
        return false;
      }
    }
    return false;
  }

  Callees& callees_;
};

class SortStep final : public CallStep {
 public:
  SortStep(const Node& node, Operands operands, Registers results, Callees& callees)
      : CallStep(node, std::move(operands), std::move(results), false),
        returns_copy_(node.opcode() == Opcode::kSorted),
        callees_(callees) {}

  void run(Frame& frame) const override {
    push_operands(frame);
    const bool reverse = frame.stack.size() > 1 && frame.stack[1].toBool();
    c10::List<c10::IValue> list = frame.stack[0].toList();
    if (returns_copy_) {
      list = list.copy();
    }
    const LessThan less(callees_);
    std::sort(list.begin(), list.end(),
              [&](const c10::IValue& a, const c10::IValue& b) { return reverse ? less(b, a) : less(a, b); });
    frame.stack.clear();
    if (returns_copy_) {
      frame.stack.emplace_back(std::move(list));
    }
    pop_results(frame);
  }

 private:
  bool returns_copy_;
  Callees& callees_;
};

}  // namespace

bool sorts_objects(const Node& node) {
  if ((node.opcode() != Opcode::kSort && node.opcode() != Opcode::kSorted) || node.inputs().empty()) {
    return false;
  }
  const auto list = node.input(0)->type()->cast<c10::ListType>();
  return list && holds_objects(list->getElementType());
}

StepPtr make_sort_step(const Node& node, Operands operands, Registers results, Callees& callees) {
  return std::make_unique<SortStep>(node, std::move(operands), std::move(results), callees);
}

}  // namespace sconce
