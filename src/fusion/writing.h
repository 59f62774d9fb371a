// Writing: the arguments of an operator that is written to a program.
#pragma once

#include "fusion/program_builder.h"

#include <ATen/core/ivalue.h>
#include <ATen/native/TypeProperties.h>

#include <optional>
#include <span>

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
  bool is_zero_dim = false;  // a tensor without dimensions: its dtype counts less (type promotion)
  c10::IValue constant;
};

// The operator that is written, with its arguments.
class Writing {
 public:
  Writing(ProgramBuilder& builder, std::span<const ElementArgument> arguments) : b(builder), arguments_(arguments) {}
  ProgramBuilder& b;

  size_t size() const { return arguments_.size(); }
  const ElementArgument& operator[](size_t i) const { return arguments_[i]; }
  bool is_tensor(size_t i) const { return arguments_[i].kind == ElementArgument::Kind::kTensor; }
  bool is_none(size_t i) const {
    return arguments_[i].kind == ElementArgument::Kind::kConstant && arguments_[i].constant.isNone();
  }
  // Returns whether the argument is a tensor or a number.
  bool is_value(size_t i) const { return arguments_[i].kind != ElementArgument::Kind::kConstant || is_number(i); }
  bool is_number(size_t i) const {
    const c10::IValue& constant = arguments_[i].constant;
    return arguments_[i].kind == ElementArgument::Kind::kConstant &&
           (constant.isDouble() || constant.isInt() || constant.isBool());
  }
  std::optional<double> number(size_t i) const {
    return is_number(i) ? std::optional(arguments_[i].constant.toScalar().toDouble()) : std::nullopt;
  }
  bool is_one(size_t i) const { return is_number(i) && *number(i) == 1; }

  // Returns the dtype to which LibTorch promotes the arguments; nothing if it depends on the default dtype or no kernel
  // computes with it.
  std::optional<c10::ScalarType> promoted(std::initializer_list<size_t> positions) const {
    at::native::ResultTypeState state = {};
    for (const size_t i : positions) {
      const ElementArgument& argument = arguments_[i];
      if (argument.kind == ElementArgument::Kind::kTensor) {
        c10::ScalarType& category = argument.is_zero_dim ? state.zeroResult : state.dimResult;
        category =
            category == c10::ScalarType::Undefined ? argument.value.type : c10::promoteTypes(category, argument.value.type);
      } else if (is_value(i)) {
        const bool is_floating = argument.kind == ElementArgument::Kind::kNumber ? c10::isFloatingType(argument.value.type)
                                                                                 : argument.constant.isDouble();
        const bool is_bool =
            argument.kind == ElementArgument::Kind::kNumber ? argument.value.type == at::kBool : argument.constant.isBool();
        // Any floating dtype is the same here: a result that takes it from the number alone is refused below.
        const c10::ScalarType type = is_floating ? at::kFloat : is_bool ? at::kBool : at::kLong;
        state.wrappedResult =
            state.wrappedResult == c10::ScalarType::Undefined ? type : c10::promoteTypes(state.wrappedResult, type);
      } else {
        return std::nullopt;
      }
    }
    const c10::ScalarType type = at::native::result_type(state);
    const c10::ScalarType of_tensors =
        at::native::result_type({state.dimResult, c10::ScalarType::Undefined, state.zeroResult});
    const bool takes_number =
        of_tensors != c10::ScalarType::Undefined && c10::isFloatingType(type) && !c10::isFloatingType(of_tensors);
    return is_kernel_type(type) && !takes_number ? std::optional(type) : std::nullopt;
  }

  // Returns the argument in the type in which an operator on `dtype` computes. A number is not rounded to bfloat16.
  Element as(size_t i, c10::ScalarType dtype) {
    const ElementArgument& argument = arguments_[i];
    const c10::ScalarType type = compute_type(dtype);
    if (argument.kind == ElementArgument::Kind::kTensor) {
      return b.convert(b.convert(argument.value, dtype), type);
    }
    if (argument.kind == ElementArgument::Kind::kNumber) {
      return b.convert(argument.value, type);
    }
    return number_as(argument.constant, type);
  }
  Element number_as(const c10::IValue& number, c10::ScalarType type) {
    const c10::Scalar scalar = number.toScalar();
    return c10::isFloatingType(type) ? b.literal(scalar.toDouble(), type)
           : type == at::kBool       ? b.integer(scalar.toBool() ? 1 : 0, type)
                                     : b.integer(scalar.toLong(), type);
  }
  // Returns the result of a computation on `dtype`.
  Element done(Element value, c10::ScalarType dtype) { return b.convert(value, dtype); }

  Element literal(double value, Element like) {
    return c10::isFloatingType(like.type) ? b.literal(value, like.type) : b.integer(static_cast<int64_t>(value), like.type);
  }

 private:
  std::span<const ElementArgument> arguments_;
};

}  // namespace sconce
