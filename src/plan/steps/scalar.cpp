// Operators on numbers, lists and properties of tensors. They take a few instructions; a call through LibTorch's
// stack would take ten times as many. Results and errors are LibTorch's.
#include "plan/steps/steps.h"

#include <ATen/core/Tensor.h>
#include <ATen/core/ivalue.h>

#include <algorithm>
#include <array>
#include <stdexcept>

namespace sconce {
namespace {

using c10::IValue;

// Operands in order, as they are in the frame.
using Arguments = std::array<const IValue*, 2>;
using ScalarFunction = IValue (*)(const Arguments& arguments);

int64_t int_of(const Arguments& arguments, size_t index) { return arguments[index]->toInt(); }

template <typename Compare>
IValue compare_ints(const Arguments& arguments) {
  return Compare()(int_of(arguments, 0), int_of(arguments, 1));
}

// Overflow wraps around, as in LibTorch's build.
template <typename Combine>
IValue combine_ints(const Arguments& arguments) {
  return static_cast<int64_t>(
      Combine()(static_cast<uint64_t>(int_of(arguments, 0)), static_cast<uint64_t>(int_of(arguments, 1))));
}

template <bool kEqual>
IValue compare_strings(const Arguments& arguments) {
  return (arguments[0]->toStringRef() == arguments[1]->toStringRef()) == kEqual;
}

IValue element(const Arguments& arguments) {
  const auto elements = arguments[0]->toListRef();
  const int64_t size = static_cast<int64_t>(elements.size());
  const int64_t index = int_of(arguments, 1);
  const int64_t from_front = index < 0 ? index + size : index;
  if (from_front < 0 || from_front >= size) {
    throw std::out_of_range("list index out of range");
  }
  return elements[static_cast<size_t>(from_front)];
}

IValue append(const Arguments& arguments) {
  arguments[0]->toList().push_back(*arguments[1]);
  return *arguments[0];
}

IValue contains_int(const Arguments& arguments) {
  const auto elements = arguments[0]->toListRef();
  const int64_t wanted = int_of(arguments, 1);
  return std::any_of(elements.begin(), elements.end(), [&](const IValue& each) { return each.toInt() == wanted; });
}

struct ScalarOperator {
  Opcode opcode;
  const char* overload;
  ScalarFunction function;
};

constexpr std::array kScalarOperators = {
    ScalarOperator{Opcode::kEqual, "int", compare_ints<std::equal_to<>>},
    ScalarOperator{Opcode::kNotEqual, "int", compare_ints<std::not_equal_to<>>},
    ScalarOperator{Opcode::kLess, "int", compare_ints<std::less<>>},
    ScalarOperator{Opcode::kLessEqual, "int", compare_ints<std::less_equal<>>},
    ScalarOperator{Opcode::kGreater, "int", compare_ints<std::greater<>>},
    ScalarOperator{Opcode::kGreaterEqual, "int", compare_ints<std::greater_equal<>>},
    ScalarOperator{Opcode::kAdd, "int", combine_ints<std::plus<>>},
    ScalarOperator{Opcode::kSub, "int", combine_ints<std::minus<>>},
    ScalarOperator{Opcode::kMul, "int", combine_ints<std::multiplies<>>},
    ScalarOperator{Opcode::kEqual, "str", compare_strings<true>},
    ScalarOperator{Opcode::kNotEqual, "str", compare_strings<false>},
    ScalarOperator{Opcode::kNot, "", [](const Arguments& a) { return IValue(!a[0]->toBool()); }},
    ScalarOperator{Opcode::kIs, "", [](const Arguments& a) { return IValue(a[0]->is(*a[1])); }},
    ScalarOperator{Opcode::kIsNot, "", [](const Arguments& a) { return IValue(!a[0]->is(*a[1])); }},
    ScalarOperator{Opcode::kLength, "t",
                   [](const Arguments& a) { return IValue(static_cast<int64_t>(a[0]->toListRef().size())); }},
    ScalarOperator{Opcode::kGetItem, "t", element},
    ScalarOperator{Opcode::kAppend, "t", append},
    ScalarOperator{Opcode::kContains, "int_list", contains_int},
    ScalarOperator{Opcode::kDim, "", [](const Arguments& a) { return IValue(a[0]->toTensor().dim()); }},
    ScalarOperator{Opcode::kSize, "int", [](const Arguments& a) { return IValue(a[0]->toTensor().size(int_of(a, 1))); }},
    ScalarOperator{Opcode::kDtype, "",
                   [](const Arguments& a) { return IValue(static_cast<int64_t>(a[0]->toTensor().scalar_type())); }},
    ScalarOperator{Opcode::kDevice, "", [](const Arguments& a) { return IValue(a[0]->toTensor().device()); }},
};

// Returns null for an operator that has no function here.
const ScalarOperator* scalar_operator(const Op& op) {
  const auto* row = std::find_if(kScalarOperators.begin(), kScalarOperators.end(), [&](const ScalarOperator& each) {
    return op.opcode == each.opcode && op.schema != nullptr && op.schema->overload_name() == each.overload;
  });
  return row == kScalarOperators.end() ? nullptr : row;
}

class ScalarStep final : public Step {
 public:
  ScalarStep(const Node& node, const Operands& operands, Register result, ScalarFunction function)
      : Step(true), node_(node), function_(function), operands_({operands.front(), operands.back()}), result_(result) {}

  void run(Frame& frame) const override {
    frame[result_] = function_({&frame[operands_[0].index], &frame[operands_[1].index]});
    for (const Operand operand : operands_) {
      if (operand.last_use) {
        frame[operand.index] = IValue();
      }
    }
  }
  std::string describe() const override {
    return describe_step(node_.kind().toQualString(), {operands_.begin(), operands_.begin() + node_.inputs().size()},
                         {result_});
  }

 private:
  const Node& node_;  // node of the graph that the plan keeps alive
  ScalarFunction function_;
  std::array<Operand, 2> operands_;  // a function of one argument has it twice
  Register result_;
};

}  // namespace

bool has_scalar_step(const Op& op) { return scalar_operator(op) != nullptr; }

StepPtr make_scalar_step(const Node& node, const Operands& operands, const Registers& results) {
  const ScalarOperator* row = scalar_operator(node.op());
  if (row == nullptr || operands.empty() || operands.size() > 2 || results.size() != 1) {
    return nullptr;
  }
  return std::make_unique<ScalarStep>(node, operands, results.front(), row->function);
}

}  // namespace sconce
