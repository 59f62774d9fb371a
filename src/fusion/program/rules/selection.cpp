// Comparisons, logic, selection, bounds.
#include "fusion/program/rules/rule.h"

namespace sconce {
namespace {

template <MachineOp kOp>
Result write_comparison(RuleArguments& args) {
  const Type dtype = args.promoted({0, 1});
  if (!dtype) {
    return std::nullopt;
  }
  return args.b.apply(kOp, args.rounded(0, *dtype), args.rounded(1, *dtype));
}

template <MachineOp kOp>
Result write_logical(RuleArguments& args) {
  for (size_t i = 0; i < operand_count(kOp); ++i) {
    if (!args.is_tensor(i)) {
      return std::nullopt;
    }
  }
  const auto truth = [&](size_t i) { return args.b.convert(args[i].value, at::kBool); };
  return operand_count(kOp) == 1 ? args.b.apply(kOp, truth(0)) : args.b.apply(kOp, truth(0), truth(1));
}

template <MachineOp kOp>
Result write_bitwise(RuleArguments& args) {
  const Type dtype = operand_count(kOp) == 1 ? args.promoted({0}) : args.promoted({0, 1});
  if (!dtype || c10::isFloatingType(*dtype)) {
    return std::nullopt;
  }
  return operand_count(kOp) == 1 ? args.b.apply(kOp, args.as(0, *dtype))
                                 : args.b.apply(kOp, args.as(0, *dtype), args.as(1, *dtype));
}

// Returns whether the argument is a value of an integer dtype, or of bool.
bool is_value_of(const RuleArguments& args, size_t i, c10::ScalarType dtype) {
  if (!args.is_number(i)) {
    return args.type(i) == dtype;
  }
  const double number = *args.number(i);
  const auto is_within = [&](double low, double high) { return number >= low && number <= high; };
  return args.type(i) != at::kDouble && (dtype == at::kInt    ? is_within(INT32_MIN, INT32_MAX)
                                         : dtype == at::kByte ? is_within(0, UINT8_MAX)
                                         : dtype == at::kBool ? is_within(0, 1)
                                                              : true);
}

Result write_where(RuleArguments& args) {
  const Type dtype = args.promoted({1, 2});
  if (!dtype || !args.is_tensor(0) || args.type(0) != at::kBool) {
    return std::nullopt;
  }
  for (const size_t i : {1, 2}) {
    // LibTorch raises where the number does not fit.
    if (!args.is_tensor(i) && !c10::isFloatingType(*dtype) && !is_value_of(args, i, *dtype)) {
      return std::nullopt;
    }
  }
  return args.done(args.select(args[0].value, args.as(1, *dtype), args.as(2, *dtype)), *dtype);
}

// masked_fill(self, mask, value): in the dtype of self.
Result write_masked_fill(RuleArguments& args) {
  const c10::ScalarType dtype = args.type(0);
  if (!args.is_tensor(1) || args.type(1) != at::kBool || !args.is_value(2) || (args.is_tensor(2) && !args[2].is_zero_dim) ||
      (!c10::isFloatingType(dtype) && !is_value_of(args, 2, dtype))) {
    return std::nullopt;
  }
  return args.done(args.select(args[1].value, args.as(2, dtype), args.as(0, dtype)), dtype);
}

// fill_(self, value): the value in the dtype of self.
Result write_fill(RuleArguments& args) {
  const c10::ScalarType dtype = args.type(0);
  return args.is_value(1) && !args.is_tensor(1) && (c10::isFloatingType(dtype) || is_value_of(args, 1, dtype))
             ? Result(args.done(args.as(1, dtype), dtype))
             : std::nullopt;
}

// threshold(self, threshold, value)
Result write_threshold(RuleArguments& args) {
  return args.is_number(1) && args.is_number(2) ? args.function([&](Element x) {
    const Element is_low = args.b.apply(MachineOp::kLessEqual, x, args.as(1, args.type(0)));
    return args.select(is_low, args.as(2, args.type(0)), x);
  })
                                                : std::nullopt;
}

// ---- bounds ---------------------------------------------------------------------------------------------------------

constexpr size_t kNoBound = 0;

// Bounds are numbers, or tensors of which the result takes the promoted dtype.
Result write_bounded(RuleArguments& args, size_t low, size_t high) {
  Type dtype = args.promoted({0});
  for (const size_t bound : {low, high}) {
    if (bound != kNoBound && !args.is_none(bound)) {
      const Type with_bound = args.promoted({0, bound});
      dtype = with_bound && dtype && (!args.is_tensor(bound) || args.type(bound) == *dtype)
                  ? Type(c10::promoteTypes(*dtype, *with_bound))
                  : std::nullopt;
    }
  }
  if (!dtype || *dtype == at::kBool || (low == kNoBound && high == kNoBound)) {
    return std::nullopt;
  }
  const auto is_tensor = [&](size_t bound) { return bound != kNoBound && args.is_tensor(bound); };
  if (c10::isFloatingType(*dtype) && (is_tensor(low) || is_tensor(high))) {
    args.b.set_may_differ();  // of two zeros, the place of the element decides
  }
  Element value = args.as(0, *dtype);
  if (low != kNoBound && !args.is_none(low)) {
    value = args.b.apply(MachineOp::kMax, args.rounded(low, *dtype), value);
  }
  if (high != kNoBound && !args.is_none(high)) {
    value = args.b.apply(MachineOp::kMin, args.rounded(high, *dtype), value);
  }
  return args.done(value, *dtype);
}

// clamp(self, min, max). A number that is the only bound has no effect if it is NaN. With two bounds the result is NaN then.
Result write_clamp(RuleArguments& args) {
  const bool has_both = !args.is_none(1) && !args.is_none(2);
  const size_t bound = args.is_none(1) ? 2 : 1;
  if (has_both || args.is_none(bound) || args.is_tensor(bound)) {
    return has_both || !args.is_none(bound) ? write_bounded(args, 1, 2) : std::nullopt;
  }
  const Type dtype = args.promoted({0, bound});
  if (!dtype || *dtype == at::kBool) {
    return std::nullopt;
  }
  const Element x = args.as(0, *dtype);
  const Element limit = args.rounded(bound, *dtype);
  const Element is_outside = bound == 1 ? args.less(x, limit) : args.less(limit, x);
  return args.done(args.select(is_outside, limit, x), *dtype);
}
Result write_clamp_min(RuleArguments& args) { return write_bounded(args, 1, kNoBound); }
Result write_clamp_max(RuleArguments& args) { return write_bounded(args, kNoBound, 1); }

// hardtanh(self, min, max)
Result write_hardtanh(RuleArguments& args) {
  return c10::isFloatingType(args.type(0)) && args.is_number(1) && args.is_number(2) ? write_bounded(args, 1, 2)
                                                                                     : std::nullopt;
}

Result write_relu6(RuleArguments& args) {
  const ElementArgument bounded[] = {args[0], {.constant = 0}, {.constant = 6}};
  RuleArguments bounds(args.b, bounded);
  return write_hardtanh(bounds);
}

Result write_relu(RuleArguments& args) {
  const c10::ScalarType dtype = args.type(0);
  if (dtype == at::kBool) {
    return std::nullopt;
  }
  const Element x = args.as(0, dtype);
  // x comes second: of 0.0 and -0.0, which are equal, kMax takes the second, and LibTorch's relu keeps -0.0.
  return args.done(args.b.apply(MachineOp::kMax, args.literal(0, x), x), dtype);
}

// nan_to_num(self, nan, posinf, neginf)
Result write_nan_to_num(RuleArguments& args) {
  const c10::ScalarType dtype = args.type(0);
  const double largest = dtype == at::kDouble  ? std::numeric_limits<double>::max()
                         : dtype == at::kFloat ? std::numeric_limits<float>::max()
                         : dtype == at::kHalf  ? static_cast<double>(std::numeric_limits<c10::Half>::max())
                                               : static_cast<double>(std::numeric_limits<c10::BFloat16>::max());
  const auto given = [&](size_t i, Element x, double otherwise) {
    return args.is_none(i) ? args.literal(otherwise, x) : args.as(i, dtype);
  };
  return args.function([&](Element x) {
    const Element infinity = args.literal(std::numeric_limits<double>::infinity(), x);
    const Element low = args.select(args.equal(x, args.b.apply(MachineOp::kNeg, infinity)), given(3, x, -largest), x);
    const Element high = args.select(args.equal(x, infinity), given(2, x, largest), low);
    return args.select(args.different(x, x), given(1, x, 0), high);
  });
}

}  // namespace

void add_selection_rules(RuleTable& table) {
  add_rule(table, "eq", write_comparison<MachineOp::kEqual>, {"Tensor", "Scalar"});
  add_rule(table, "ne", write_comparison<MachineOp::kNotEqual>, {"Tensor", "Scalar"});
  add_rule(table, "lt", write_comparison<MachineOp::kLess>, {"Tensor", "Scalar"});
  add_rule(table, "le", write_comparison<MachineOp::kLessEqual>, {"Tensor", "Scalar"});
  add_rule(table, "gt", write_comparison<MachineOp::kGreater>, {"Tensor", "Scalar"});
  add_rule(table, "ge", write_comparison<MachineOp::kGreaterEqual>, {"Tensor", "Scalar"});
  add_rule(table, "logical_and", write_logical<MachineOp::kAnd>);
  add_rule(table, "logical_or", write_logical<MachineOp::kOr>);
  add_rule(table, "logical_xor", write_logical<MachineOp::kXor>);
  add_rule(table, "logical_not", write_logical<MachineOp::kNot>);
  add_rule(table, "bitwise_and", write_bitwise<MachineOp::kAnd>, {"Tensor", "Scalar"});
  add_rule(table, "bitwise_or", write_bitwise<MachineOp::kOr>, {"Tensor", "Scalar"});
  add_rule(table, "bitwise_xor", write_bitwise<MachineOp::kXor>, {"Tensor", "Scalar"});
  add_rule(table, "bitwise_not", write_bitwise<MachineOp::kNot>);
  add_rule(table, "where", write_where, {"self", "ScalarSelf", "ScalarOther", "Scalar"});
  add_rule(table, "masked_fill", write_masked_fill, {"Scalar", "Tensor"});
  add_rule(table, "fill_", write_fill, {"Scalar"});
  add_rule(table, "zero_", [](RuleArguments& args) {
    return Result(args.done(args.number_as(0, compute_type(args.type(0))), args.type(0)));
  });
  add_rule(table, "threshold", write_threshold);
  add_rule(table, "clamp", write_clamp, {"", "Tensor"});
  add_rule(table, "clamp_min", write_clamp_min);
  add_rule(table, "clamp_max", write_clamp_max);
  add_rule(table, "hardtanh", write_hardtanh);
  add_rule(table, "relu6", write_relu6);
  add_rule(table, "relu", write_relu);
  add_rule(table, "nan_to_num", write_nan_to_num);
}

}  // namespace sconce
