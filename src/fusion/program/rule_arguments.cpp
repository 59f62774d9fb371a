#include "fusion/program/rule_arguments.h"

#include "ops/promoted_dtype.h"

#include <c10/core/DefaultDtype.h>

#include <algorithm>
#include <numbers>

namespace sconce {
namespace {

using Kind = ElementArgument::Kind;

}  // namespace

bool RuleArguments::is_none(size_t i) const {
  return arguments_[i].kind == Kind::kConstant && arguments_[i].constant.isNone();
}

bool RuleArguments::is_number(size_t i) const {
  const c10::IValue& constant = arguments_[i].constant;
  return arguments_[i].kind == Kind::kConstant && (constant.isDouble() || constant.isInt() || constant.isBool());
}

std::optional<double> RuleArguments::number(size_t i) const {
  return is_number(i) ? std::optional(arguments_[i].constant.toScalar().toDouble()) : std::nullopt;
}

std::optional<size_t> RuleArguments::word(size_t i, std::initializer_list<std::string_view> words) const {
  const c10::IValue& constant = arguments_[i].constant;
  const auto* found = constant.isString() ? std::ranges::find(words, constant.toStringRef()) : words.end();
  return found == words.end() ? std::nullopt : std::optional(static_cast<size_t>(found - words.begin()));
}

c10::ScalarType RuleArguments::type(size_t i) const {
  const ElementArgument& argument = arguments_[i];
  return argument.kind != Kind::kConstant ? argument.value.type
         : !is_number(i)                  ? c10::ScalarType::Undefined
         : argument.constant.isDouble()   ? at::kDouble
         : argument.constant.isBool()     ? at::kBool
                                          : at::kLong;
}

bool RuleArguments::accepts_numbers() const {
  bool accepts = true;
  const auto accept = [&](size_t i, c10::ScalarType dtype) {
    if (arguments_[i].kind == Kind::kConstant) {
      accepts = accepts && fits_dtype(arguments_[i].constant, dtype);
    } else if (!(type(i) == dtype || (type(i) == at::kLong && c10::isFloatingType(dtype)))) {
      b.bind(arguments_[i].value, dtype);
    }
  };
  for (size_t i = 0; i < size(); ++i) {
    if (is_tensor(i) || !is_value(i) || type(i) == at::kBool) {
      continue;
    }
    bool is_beside_floating = false;
    for (size_t tensor = 0; tensor < size(); ++tensor) {
      if (is_tensor(tensor) && c10::isFloatingType(type(tensor)) == c10::isFloatingType(type(i))) {
        accept(i, type(tensor));
        is_beside_floating = true;
      }
    }
    if (c10::isFloatingType(type(i)) && !is_beside_floating) {
      accept(i, at::kFloat);  // the default dtype has at least its range
    }
  }
  return accepts;
}

Type RuleArguments::promoted(std::initializer_list<size_t> positions) const {
  PromotedDtype promoted;
  for (const size_t i : positions) {
    if (!is_value(i)) {
      return std::nullopt;
    }
    if (is_tensor(i) && !arguments_[i].is_wrapped_number) {
      promoted.add_tensor(type(i), arguments_[i].is_zero_dim);
    } else {
      promoted.add_number(type(i));
    }
  }
  const Type dtype = promoted.dtype();
  return promoted.may_be_default() ? default_dtype() : dtype && is_kernel_type(*dtype) ? dtype : std::nullopt;
}

// Returns the default dtype, on which the program then depends.
Type RuleArguments::default_dtype() const {
  const c10::ScalarType dtype = c10::get_default_dtype_as_scalartype();
  b.takes_default_dtype() = true;
  return is_kernel_type(dtype) ? Type(dtype) : std::nullopt;
}

Type RuleArguments::promoted_to_floating(std::initializer_list<size_t> positions) const {
  const Type dtype = promoted(positions);
  return dtype && !c10::isFloatingType(*dtype) ? default_dtype() : dtype;
}

Type RuleArguments::promoted_floating(std::initializer_list<size_t> positions) const {
  const Type dtype = promoted(positions);
  return dtype && c10::isFloatingType(*dtype) ? dtype : std::nullopt;
}

Type RuleArguments::one_floating(std::initializer_list<size_t> positions) const {
  const c10::ScalarType dtype = type(*positions.begin());
  const bool is_of_all = std::ranges::all_of(positions, [&](size_t i) { return is_tensor(i) && type(i) == dtype; });
  return is_of_all && c10::isFloatingType(dtype) ? Type(dtype) : std::nullopt;
}

Element RuleArguments::as(size_t i, c10::ScalarType dtype) {
  const ElementArgument& argument = arguments_[i];
  if (argument.kind == Kind::kConstant) {
    return number_as(argument.constant, compute_type(dtype));
  }
  const bool keeps_precision = argument.kind == Kind::kNumber || argument.is_zero_dim;
  return b.convert(keeps_precision ? argument.value : b.convert(argument.value, dtype), compute_type(dtype));
}

Element RuleArguments::rounded(size_t i, c10::ScalarType dtype) {
  if (is_tensor(i) && type(i) == dtype) {
    return as(i, dtype);
  }
  return b.convert(b.convert(as(i, dtype), dtype), compute_type(dtype));
}

Element RuleArguments::number_as(const c10::IValue& number, c10::ScalarType type) {
  const c10::Scalar scalar = number.toScalar();
  switch (type) {
    case at::kFloat:
      return b.literal(scalar.isIntegral(false) ? static_cast<float>(scalar.toLong()) : scalar.toDouble(), type);
    case at::kDouble: return b.literal(scalar.toDouble(), type);
    case at::kBool: return b.integer(scalar.toDouble() != 0 ? 1 : 0, type);
    case at::kInt: return b.integer(static_cast<int32_t>(scalar.toLong()), type);
    case at::kByte: return b.integer(static_cast<uint8_t>(scalar.toLong()), type);
    default: return b.integer(scalar.toLong(), type);
  }
}

Element RuleArguments::root(Element x) {
  if (!c10::isReducedFloatingType(type(0))) {
    b.set_may_differ();
  }
  return b.apply(MachineOp::kSqrt, x);
}

Element RuleArguments::inverse_root(Element x) {
  if (c10::isReducedFloatingType(type(0))) {
    b.set_may_differ();
  }
  return inverse(b.apply(MachineOp::kSqrt, x));
}

Element RuleArguments::one_plus_exp_of_negative(Element x) {
  // 0 - x, not -x: as LibTorch writes it.
  return add(literal(1, x), b.apply(MachineOp::kExp, sub(literal(0, x), x)));
}

Element RuleArguments::sigmoid(Element x) {
  return x.type == at::kFloat ? b.apply(MachineOp::kSigmoid, x) : inverse(one_plus_exp_of_negative(x));
}

Element RuleArguments::normal_cdf(Element x) {
  if (x.type == at::kFloat) {
    return b.apply(MachineOp::kNormalCdf, x);
  }
  return times(add(literal(1, x), b.apply(MachineOp::kErf, times(x, std::numbers::sqrt2 / 2))), 0.5);
}

Element RuleArguments::literal(double value, Element like) {
  return c10::isFloatingType(like.type) ? b.literal(value, like.type) : b.integer(static_cast<int64_t>(value), like.type);
}

}  // namespace sconce
