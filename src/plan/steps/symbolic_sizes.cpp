// Steps of plans that leave sizes open: numbers may be c10::SymInt and c10::SymFloat.
#include "plan/steps/call_step.h"
#include "plan/steps/symbolic_matmul.h"

#include <ATen/core/Tensor.h>
#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/core/jit_type.h>
#include <c10/core/SymFloat.h>
#include <c10/core/SymInt.h>

#include <algorithm>
#include <utility>

namespace sconce {
namespace {

using c10::IValue;

bool is_open(const IValue& value) { return value.isSymInt() || value.isSymFloat(); }

bool has_open(const IValue& value) {
  if (value.isList()) {
    const auto elements = value.toListRef();
    return std::ranges::any_of(elements, has_open);
  }
  if (value.isTuple()) {
    return std::ranges::any_of(value.toTupleRef().elements(), has_open);
  }
  if (value.isGenericDict()) {
    const c10::impl::GenericDict dict = value.toGenericDict();
    return std::any_of(dict.begin(), dict.end(), [](const auto& entry) { return has_open(entry.value()); });
  }
  return is_open(value);
}

// Returns the value with each open number as what it is in this run, which is a guard. Lists and dicts stay the objects that
// they are.
IValue closed(const IValue& value) {
  if (value.isSymInt()) {
    return value.toInt();
  }
  if (value.isSymFloat()) {
    return value.toSymFloat().guard_float(__FILE__, __LINE__);
  }
  if (!has_open(value)) {
    return value;
  }
  if (value.isList()) {
    c10::List<IValue> list = value.toList();
    for (size_t i = 0; i < list.size(); ++i) {
      list.set(i, closed(list.get(i)));
    }
    return value;
  }
  if (value.isGenericDict()) {
    for (const auto& entry : value.toGenericDict()) {
      entry.setValue(closed(entry.value()));
    }
    return value;
  }
  const auto& tuple = value.toTupleRef();
  std::vector<IValue> elements;
  for (const IValue& element : tuple.elements()) {
    elements.push_back(closed(element));
  }
  const auto type = value.type()->expect<c10::TupleType>();
  return type->schema() != nullptr ? c10::ivalue::Tuple::createNamed(std::move(elements), type)
                                   : c10::ivalue::Tuple::create(std::move(elements));
}

// ---- what computes with open numbers ---------------------------------------------------------------------------------

bool is_number(const IValue& value) { return value.isInt() || value.isDouble() || is_open(value); }
bool is_integer(const IValue& value) { return value.isInt() || value.isSymInt(); }

c10::SymFloat sym_float_of(const IValue& value) {
  return value.isSymFloat() ? value.toSymFloat()
         : value.isDouble() ? c10::SymFloat(value.toDouble())
                            : c10::SymFloat(value.toSymInt());
}

// Returns nothing for an operator that cannot compute with open numbers.
std::optional<IValue> computed(const Node& node, const c10::SymInt& a, const c10::SymInt& b) {
  switch (node.opcode()) {
    case Opcode::kAdd: return IValue(a + b);
    case Opcode::kSub: return IValue(a - b);
    case Opcode::kMul: return IValue(a * b);
    case Opcode::kMax: return IValue(a.max(b));
    case Opcode::kMin: return IValue(a.min(b));
    // A divisor that is open may be 0 in another run.
    case Opcode::kFloorDivideNumbers: return b.maybe_as_int().value_or(0) > 0 ? std::optional<IValue>(a / b) : std::nullopt;
    case Opcode::kRemainder: return b.maybe_as_int().value_or(0) > 0 ? std::optional<IValue>(a % b) : std::nullopt;
    case Opcode::kDiv: return IValue(c10::SymFloat(a) / c10::SymFloat(b));
    case Opcode::kEqual: return IValue(a == b);
    case Opcode::kNotEqual: return IValue(a != b);
    case Opcode::kLess: return IValue(a < b);
    case Opcode::kLessEqual: return IValue(a <= b);
    case Opcode::kGreater: return IValue(a > b);
    case Opcode::kGreaterEqual: return IValue(a >= b);
    default: return std::nullopt;
  }
}

std::optional<IValue> computed(const Node& node, const c10::SymFloat& a, const c10::SymFloat& b) {
  switch (node.opcode()) {
    case Opcode::kAdd: return IValue(a + b);
    case Opcode::kSub: return IValue(a - b);
    case Opcode::kMul: return IValue(a * b);
    case Opcode::kDiv: return IValue(a / b);
    default: return std::nullopt;
  }
}

std::optional<IValue> computed(const Node& node, const std::vector<IValue>& operands) {
  if (operands.size() == 1 && node.opcode() == Opcode::kNeg && is_integer(operands[0])) {
    return IValue(c10::SymInt(0) - operands[0].toSymInt());
  }
  if (operands.size() == 1 && node.opcode() == Opcode::kInt && is_integer(operands[0])) {
    return operands[0];
  }
  if (operands.size() == 1 && node.opcode() == Opcode::kFloat) {
    return IValue(sym_float_of(operands[0]));
  }
  if (operands.size() != 2) {
    return std::nullopt;
  }
  return is_integer(operands[0]) && is_integer(operands[1])
             ? computed(node, operands[0].toSymInt(), operands[1].toSymInt())
             : computed(node, sym_float_of(operands[0]), sym_float_of(operands[1]));
}

// Returns what a tensor says about its sizes; nothing for an operator that asks for something else.
std::optional<IValue> read_size(const Node& node, const std::vector<IValue>& operands) {
  const at::Tensor tensor = operands.front().isTensor() ? operands.front().toTensor() : at::Tensor();
  if (!tensor.defined()) {
    return std::nullopt;
  }
  if (node.opcode() == Opcode::kNumel) {
    return IValue(tensor.sym_numel());
  }
  if (node.opcode() == Opcode::kLength && tensor.dim() > 0) {
    return IValue(tensor.sym_size(0));
  }
  if (node.opcode() != Opcode::kSize) {
    return std::nullopt;
  }
  if (operands.size() == 2 && operands[1].isInt()) {
    return IValue(tensor.sym_size(operands[1].toInt()));
  }
  if (operands.size() != 1) {
    return std::nullopt;
  }
  c10::impl::GenericList sizes(c10::IntType::get());
  for (const c10::SymInt& size : tensor.sym_sizes()) {
    sizes.push_back(size);
  }
  return IValue(std::move(sizes));
}

// Returns the product; nothing if LibTorch's function takes the operands, or raises.
std::optional<IValue> product_of(const Node& node, const std::vector<IValue>& operands) {
  const bool is_linear = node.kind() == aten::linear && operands.size() == 3;
  const bool is_product = is_linear || (node.kind() == aten::matmul && operands.size() == 2);
  if (!is_product || !operands[0].isTensor() || !operands[1].isTensor()) {
    return std::nullopt;
  }
  const at::Tensor a = operands[0].toTensor();
  const at::Tensor b = operands[1].toTensor();
  const bool is_batched = a.defined() && b.defined() && a.dim() > 0 && b.dim() > 0 && (a.dim() > 2 || b.dim() > 2);
  if (!is_batched || (is_linear && b.dim() > 2) || !(has_symbolic_sizes(a) || has_symbolic_sizes(b))) {
    return std::nullopt;
  }
  if (!is_linear || operands[2].isNone()) {
    return matmul_with_symbolic_sizes(a, is_linear ? b.t() : b);
  }
  // LibTorch adds the bias to the product of two matrices where the rows lie one after the other.
  if (!operands[2].isTensor() || a.dim() < 3 || (a.dim() == 3 && a.is_contiguous())) {
    return std::nullopt;
  }
  return matmul_with_symbolic_sizes(a, b.t()).add_(operands[2].toTensor());
}

// ---- what takes open numbers ------------------------------------------------------------------------------------------

enum class Takes : uint8_t { kClosed, kAsTheyAre, kForDispatcher };

// Returns whether the operator puts elements into containers, or takes them out, whatever they are. Others of their kind
// read them (aten::str, aten::hash, aten::__contains__).
bool moves_elements(const Node& node) {
  const bool is_of_container =
      node.opcode() >= Opcode::kGetItem && node.opcode() <= Opcode::kLength && node.opcode() != Opcode::kContains;
  const bool joins_lists = (node.opcode() == Opcode::kAdd || node.opcode() == Opcode::kMul) &&
                           node.output()->type()->kind() == c10::TypeKind::ListType;
  return is_of_container || joins_lists;
}

// How an operator's function handles open numbers in an operand.
Takes operand_takes(const Node& node, size_t index) {
  switch (node.opcode()) {
    case Opcode::kListConstruct:
    case Opcode::kListUnpack:
    case Opcode::kTupleConstruct:
    case Opcode::kTupleUnpack:
    case Opcode::kTupleSlice:
    case Opcode::kUncheckedCast: return Takes::kAsTheyAre;
    case Opcode::kTupleIndex: return index == 0 ? Takes::kAsTheyAre : Takes::kClosed;
    case Opcode::kDictConstruct: return index % 2 == 1 ? Takes::kAsTheyAre : Takes::kClosed;
    default: break;
  }
  const c10::FunctionSchema* schema = node.schema();
  if (schema == nullptr || node.op().is_language() || index >= schema->arguments().size()) {
    return Takes::kClosed;
  }
  const c10::Argument& argument = schema->arguments()[index];
  if (argument.type()->hasFreeVariables() && moves_elements(node)) {
    return Takes::kAsTheyAre;
  }
  c10::TypePtr type = argument.real_type();
  if (const auto optional = type->cast<c10::OptionalType>()) {
    type = optional->getElementType();
  }
  const auto list = type->cast<c10::ListType>();
  const c10::TypeKind kind = (list ? list->getElementType() : type)->kind();
  const bool takes_open = kind == c10::TypeKind::SymIntType || (!list && kind == c10::TypeKind::NumberType);
  return node.op().dispatched && takes_open ? Takes::kForDispatcher : Takes::kClosed;
}

IValue for_dispatcher(const IValue& value) {
  if (!value.isList() || !has_open(value)) {
    return value;
  }
  std::vector<c10::SymInt> numbers;
  for (const IValue& element : value.toListRef()) {
    numbers.push_back(element.toSymInt());
  }
  return c10::SymIntArrayRef(numbers);
}

class SymbolicSizesStep final : public CallStep {
 public:
  SymbolicSizesStep(const Node& node, Operands operands, Registers results, StepPtr step)
      : CallStep(node, operands, results, /*may_skip_autograd=*/false),
        node_(node),
        operands_(std::move(operands)),
        results_(std::move(results)),
        step_(std::move(step)) {}

  void prepare(Frame& frame) const override {
    CallStep::prepare(frame);
    step_->prepare(frame);
  }

  void run(Frame& frame) const override {
    std::vector<IValue> given;
    for (const Operand operand : operands_) {
      given.push_back(frame[operand.index]);
    }
    if (auto result = computed_open(given)) {
      push_operands(frame);  // which empties their registers
      frame.stack.assign(1, std::move(*result));
      pop_results(frame);
      return;
    }
    bool takes_open = false;
    for (size_t i = 0; i < given.size(); ++i) {
      const Takes takes = operand_takes(node_, i);
      if (takes == Takes::kClosed) {
        frame[operands_[i].index] = closed(given[i]);
      }
      takes_open = takes_open || (takes == Takes::kForDispatcher && has_open(given[i]));
    }
    given.clear();
    if (takes_open) {
      call_dispatcher(frame);
    } else {
      step_->run(frame);
    }
  }

 private:
  std::optional<IValue> computed_open(const std::vector<IValue>& operands) const {
    if (operands.empty() || results_.size() != 1 || node_.op().is_language()) {
      return std::nullopt;
    }
    if (std::ranges::all_of(operands, is_number)) {
      return std::ranges::any_of(operands, is_open) ? computed(node_, operands) : std::nullopt;
    }
    auto size = read_size(node_, operands);
    return size ? size : product_of(node_, operands);
  }

  void call_dispatcher(Frame& frame) const {
    push_operands(frame);
    for (size_t i = 0; i < operands_.size(); ++i) {
      if (operand_takes(node_, i) == Takes::kForDispatcher) {
        frame.stack[i] = for_dispatcher(frame.stack[i]);
      }
    }
    node_.op().dispatched->callBoxed(frame.stack);
    pop_results(frame);
  }

  const Node& node_;  // of the graph that the plan keeps alive
  const Operands operands_;
  const Registers results_;
  const StepPtr step_;
};

class CloseSizesStep final : public Step {
 public:
  explicit CloseSizesStep(Operands operands) : Step(true), operands_(std::move(operands)) {}

  void run(Frame& frame) const override {
    for (const Operand operand : operands_) {
      frame[operand.index] = closed(frame[operand.index]);
    }
  }
  std::string describe() const override { return describe_step("close_sizes", operands_, {}); }

 private:
  const Operands operands_;
};

}  // namespace

StepPtr make_symbolic_sizes_step(const Node& node, Operands operands, Registers results, StepPtr step) {
  return std::make_unique<SymbolicSizesStep>(node, std::move(operands), std::move(results), std::move(step));
}
StepPtr make_close_sizes_step(Operands operands) { return std::make_unique<CloseSizesStep>(std::move(operands)); }

}  // namespace sconce
