// RuleArguments: the arguments of an operator that is written to a program.
#pragma once

#include "fusion/program/program_builder.h"

#include <ATen/core/ivalue.h>

#include <initializer_list>
#include <optional>
#include <span>
#include <string_view>

namespace sconce {

// An argument of an operator in a group.
struct ElementArgument {
  enum class Kind : uint8_t {
    kTensor,    // `value`, an element of a tensor
    kNumber,    // `value`, a number that each call gives
    kConstant,  // `constant`: a number, a dtype, None, …
  };
  Kind kind = Kind::kConstant;
  Element value;
  bool is_zero_dim = false;        // a tensor without dimensions: its dtype counts less (type promotion)
  bool is_wrapped_number = false;  // a number as a tensor: its dtype counts as a number's
  c10::IValue constant;
};

using Result = std::optional<Element>;
using Type = std::optional<c10::ScalarType>;

// The operator that is written, with its arguments.
class RuleArguments {
 public:
  RuleArguments(ProgramBuilder& builder, std::span<const ElementArgument> arguments) : b(builder), arguments_(arguments) {}
  ProgramBuilder& b;

  size_t size() const { return arguments_.size(); }
  const ElementArgument& operator[](size_t i) const { return arguments_[i]; }
  bool is_tensor(size_t i) const { return arguments_[i].kind == ElementArgument::Kind::kTensor; }
  bool is_none(size_t i) const;
  // Returns whether the argument is a constant number.
  bool is_number(size_t i) const;
  // Returns whether the argument is a tensor or a number.
  bool is_value(size_t i) const { return arguments_[i].kind != ElementArgument::Kind::kConstant || is_number(i); }
  std::optional<double> number(size_t i) const;
  // Returns the position of the argument, a constant string, among the words; nothing for any other word.
  std::optional<size_t> word(size_t i, std::initializer_list<std::string_view> words) const;
  bool is_one(size_t i) const { return is_number(i) && *number(i) == 1; }
  // Returns whether the numbers fit the dtypes of the tensors, floating numbers those of floating tensors. Binds those that
  // each call gives. LibTorch raises for some others, which only the operator itself knows.
  bool accepts_numbers() const;
  // Returns the dtype of a tensor; int64, float64 or bool for a number.
  c10::ScalarType type(size_t i) const;

  // Returns the dtype to which LibTorch promotes the arguments; nothing if no kernel computes with it.
  Type promoted(std::initializer_list<size_t> positions) const;
  // Returns the dtype for an operator whose results are floating: the promoted one, or the default for integers.
  Type promoted_to_floating(std::initializer_list<size_t> positions) const;
  // Returns the promoted dtype if it is a floating one.
  Type promoted_floating(std::initializer_list<size_t> positions) const;

  // Returns the dtype of all these tensors; nothing if they have several, or no floating one.
  Type one_floating(std::initializer_list<size_t> positions) const;

  // Returns the argument in the type in which an operator on `dtype` computes. Neither a number nor a tensor without
  // dimensions is rounded to bfloat16 or float16.
  Element as(size_t i, c10::ScalarType dtype);
  // The same, rounded to the dtype first.
  Element rounded(size_t i, c10::ScalarType dtype);
  Element number_as(const c10::IValue& number, c10::ScalarType type);
  // Returns the result of a computation on `dtype`.
  Element done(Element value, c10::ScalarType dtype) { return b.convert(value, dtype); }

  // ---- operations
  Element literal(double value, Element like);
  Element add(Element x, Element y) { return b.apply(MachineOp::kAdd, x, y); }
  Element sub(Element x, Element y) { return b.apply(MachineOp::kSub, x, y); }
  Element mul(Element x, Element y) { return b.apply(MachineOp::kMul, x, y); }
  Element div(Element x, Element y) { return b.apply(MachineOp::kDiv, x, y); }
  Element less(Element x, Element y) { return b.apply(MachineOp::kLess, x, y); }
  Element equal(Element x, Element y) { return b.apply(MachineOp::kEqual, x, y); }
  Element different(Element x, Element y) { return b.apply(MachineOp::kNotEqual, x, y); }
  Element select(Element condition, Element x, Element y) { return b.apply(MachineOp::kSelect, condition, x, y); }
  Element times(Element x, double factor) { return mul(x, literal(factor, x)); }
  Element inverse(Element x) { return div(literal(1, x), x); }
  // Returns the square root of an element of the first argument. LibTorch takes those of float32 and float64 from MKL's
  // vector library, which estimates and corrects: they may lie one ulp beside the nearest number, on every CPU.
  Element root(Element x);
  // Returns its inverse. Without AVX2, LibTorch rounds the root of bfloat16 before it divides.
  Element inverse_root(Element x);
  Element one_plus_exp_of_negative(Element x);
  Element sigmoid(Element x);
  Element normal_cdf(Element x);

  // Writes a function of one floating tensor: `compute` gets its element in the type in which it computes.
  template <typename Compute>
  Result function(Compute compute) {
    const c10::ScalarType dtype = type(0);
    if (!is_tensor(0) || !c10::isFloatingType(dtype)) {
      return std::nullopt;
    }
    return done(compute(as(0, dtype)), dtype);
  }

  // The same for a function that is also of integers and bools, and then gives the default dtype.
  template <typename Compute>
  Result real_function(Compute compute, size_t argument = 0) {
    const Type dtype = promoted_to_floating({argument});
    if (!is_tensor(argument) || !dtype) {
      return std::nullopt;
    }
    return done(compute(as(argument, *dtype)), *dtype);
  }

 private:
  Type default_dtype() const;

  std::span<const ElementArgument> arguments_;
};

}  // namespace sconce
