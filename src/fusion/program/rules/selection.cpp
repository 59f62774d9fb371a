// Comparisons, logic, selection, bounds.
#include "fusion/program/rules/rule.h"

namespace sconce {
namespace {

template <MachineOp kOp>
Result write_comparison(Writing& w) {
  const Type dtype = w.promoted({0, 1});
  if (!dtype) {
    return std::nullopt;
  }
  return w.b.apply(kOp, w.rounded(0, *dtype), w.rounded(1, *dtype));
}

template <MachineOp kOp>
Result write_logical(Writing& w) {
  for (size_t i = 0; i < operand_count(kOp); ++i) {
    if (!w.is_tensor(i)) {
      return std::nullopt;
    }
  }
  const auto truth = [&](size_t i) { return w.b.convert(w[i].value, at::kBool); };
  return operand_count(kOp) == 1 ? w.b.apply(kOp, truth(0)) : w.b.apply(kOp, truth(0), truth(1));
}

template <MachineOp kOp>
Result write_bitwise(Writing& w) {
  const Type dtype = operand_count(kOp) == 1 ? w.promoted({0}) : w.promoted({0, 1});
  if (!dtype || c10::isFloatingType(*dtype)) {
    return std::nullopt;
  }
  return operand_count(kOp) == 1 ? w.b.apply(kOp, w.as(0, *dtype)) : w.b.apply(kOp, w.as(0, *dtype), w.as(1, *dtype));
}

// Returns whether the argument is a value of an integer dtype, or of bool.
bool is_value_of(const Writing& w, size_t i, c10::ScalarType dtype) {
  if (!w.is_number(i)) {
    return w.type(i) == dtype;
  }
  const double number = *w.number(i);
  const auto is_within = [&](double low, double high) { return number >= low && number <= high; };
  return w.type(i) != at::kDouble && (dtype == at::kInt    ? is_within(INT32_MIN, INT32_MAX)
                                      : dtype == at::kByte ? is_within(0, UINT8_MAX)
                                      : dtype == at::kBool ? is_within(0, 1)
                                                           : true);
}

Result write_where(Writing& w) {
  const Type dtype = w.promoted({1, 2});
  if (!dtype || !w.is_tensor(0) || w.type(0) != at::kBool) {
    return std::nullopt;
  }
  for (const size_t i : {1, 2}) {
    // LibTorch raises where the number does not fit.
    if (!w.is_tensor(i) && !c10::isFloatingType(*dtype) && !is_value_of(w, i, *dtype)) {
      return std::nullopt;
    }
  }
  return w.done(w.select(w[0].value, w.as(1, *dtype), w.as(2, *dtype)), *dtype);
}

// masked_fill(self, mask, value): in the dtype of self.
Result write_masked_fill(Writing& w) {
  const c10::ScalarType dtype = w.type(0);
  if (!w.is_tensor(1) || w.type(1) != at::kBool || !w.is_value(2) || (w.is_tensor(2) && !w[2].is_zero_dim) ||
      (!c10::isFloatingType(dtype) && !is_value_of(w, 2, dtype))) {
    return std::nullopt;
  }
  return w.done(w.select(w[1].value, w.as(2, dtype), w.as(0, dtype)), dtype);
}

// fill_(self, value): the value in the dtype of self.
Result write_fill(Writing& w) {
  const c10::ScalarType dtype = w.type(0);
  return w.is_value(1) && !w.is_tensor(1) && (c10::isFloatingType(dtype) || is_value_of(w, 1, dtype))
             ? Result(w.done(w.as(1, dtype), dtype))
             : std::nullopt;
}

// threshold(self, threshold, value)
Result write_threshold(Writing& w) {
  return w.is_number(1) && w.is_number(2) ? w.function([&](Element x) {
    const Element is_low = w.b.apply(MachineOp::kLessEqual, x, w.as(1, w.type(0)));
    return w.select(is_low, w.as(2, w.type(0)), x);
  })
                                          : std::nullopt;
}

// ---- bounds ---------------------------------------------------------------------------------------------------------

constexpr size_t kNoBound = 0;

// Bounds are numbers, or tensors of which the result takes the promoted dtype.
Result write_bounded(Writing& w, size_t low, size_t high) {
  Type dtype = w.promoted({0});
  for (const size_t bound : {low, high}) {
    if (bound != kNoBound && !w.is_none(bound)) {
      const Type with_bound = w.promoted({0, bound});
      dtype = with_bound && dtype && (!w.is_tensor(bound) || w.type(bound) == *dtype)
                  ? Type(c10::promoteTypes(*dtype, *with_bound))
                  : std::nullopt;
    }
  }
  if (!dtype || *dtype == at::kBool || (low == kNoBound && high == kNoBound)) {
    return std::nullopt;
  }
  Element value = w.as(0, *dtype);
  if (low != kNoBound && !w.is_none(low)) {
    value = w.b.apply(MachineOp::kMax, w.rounded(low, *dtype), value);
  }
  if (high != kNoBound && !w.is_none(high)) {
    value = w.b.apply(MachineOp::kMin, w.rounded(high, *dtype), value);
  }
  return w.done(value, *dtype);
}

// clamp(self, min, max). A number that is the only bound has no effect if it is NaN. With two bounds the result is NaN then.
Result write_clamp(Writing& w) {
  const bool has_both = !w.is_none(1) && !w.is_none(2);
  const size_t bound = w.is_none(1) ? 2 : 1;
  if (has_both || w.is_none(bound) || w.is_tensor(bound)) {
    return has_both || !w.is_none(bound) ? write_bounded(w, 1, 2) : std::nullopt;
  }
  const Type dtype = w.promoted({0, bound});
  if (!dtype || *dtype == at::kBool) {
    return std::nullopt;
  }
  const Element x = w.as(0, *dtype);
  const Element limit = w.rounded(bound, *dtype);
  const Element is_outside = bound == 1 ? w.less(x, limit) : w.less(limit, x);
  return w.done(w.select(is_outside, limit, x), *dtype);
}
Result write_clamp_min(Writing& w) { return write_bounded(w, 1, kNoBound); }
Result write_clamp_max(Writing& w) { return write_bounded(w, kNoBound, 1); }

// hardtanh(self, min, max)
Result write_hardtanh(Writing& w) {
  return c10::isFloatingType(w.type(0)) && w.is_number(1) && w.is_number(2) ? write_bounded(w, 1, 2) : std::nullopt;
}

Result write_relu6(Writing& w) {
  const ElementArgument bounded[] = {w[0], {.constant = 0}, {.constant = 6}};
  Writing bounds(w.b, bounded);
  return write_hardtanh(bounds);
}

Result write_relu(Writing& w) {
  const c10::ScalarType dtype = w.type(0);
  if (dtype == at::kBool) {
    return std::nullopt;
  }
  const Element x = w.as(0, dtype);
  return w.done(w.b.apply(MachineOp::kMax, w.literal(0, x), x), dtype);
}

// nan_to_num(self, nan, posinf, neginf)
Result write_nan_to_num(Writing& w) {
  const c10::ScalarType dtype = w.type(0);
  const double largest = dtype == at::kDouble  ? std::numeric_limits<double>::max()
                         : dtype == at::kFloat ? std::numeric_limits<float>::max()
                         : dtype == at::kHalf  ? static_cast<double>(std::numeric_limits<c10::Half>::max())
                                               : static_cast<double>(std::numeric_limits<c10::BFloat16>::max());
  const auto given = [&](size_t i, Element x, double otherwise) {
    return w.is_none(i) ? w.literal(otherwise, x) : w.as(i, dtype);
  };
  return w.function([&](Element x) {
    const Element infinity = w.literal(std::numeric_limits<double>::infinity(), x);
    const Element low = w.select(w.equal(x, w.b.apply(MachineOp::kNeg, infinity)), given(3, x, -largest), x);
    const Element high = w.select(w.equal(x, infinity), given(2, x, largest), low);
    return w.select(w.different(x, x), given(1, x, 0), high);
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
  add_rule(table, "zero_", [](Writing& w) { return Result(w.done(w.number_as(0, compute_type(w.type(0))), w.type(0))); });
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
