#include "fusion/operators.h"

#include "fusion/channels.h"
#include "fusion/folds.h"
#include "fusion/writing.h"
#include "load/compile_op_row.h"

#include <mutex>
#include <numbers>
#include <unordered_map>

namespace sconce {
namespace {

using Arguments = std::span<const ElementArgument>;
using Result = std::optional<Element>;
using Kind = ElementArgument::Kind;

bool is_float(c10::ScalarType type) { return c10::isFloatingType(type); }

// ---- arithmetic -----------------------------------------------------------------------------------------------------

template <MachineOp kOp>
Result write_arithmetic(Writing& w) {
  const auto dtype = w.promoted({0, 1});
  if (!dtype || *dtype == at::kBool) {
    return std::nullopt;
  }
  return w.done(w.b.apply(kOp, w.as(0, *dtype), w.as(1, *dtype)), *dtype);
}

// a + alpha * b, and with `kSign` -1 a - alpha * b
template <int kSign>
Result write_sum(Writing& w) {
  const auto dtype = w.promoted({0, 1});
  if (!dtype || *dtype == at::kBool || !w.is_number(2)) {
    return std::nullopt;
  }
  const Element a = w.as(0, *dtype);
  const Element c = w.as(1, *dtype);
  if (w.is_one(2)) {
    return w.done(w.b.apply(kSign > 0 ? MachineOp::kAdd : MachineOp::kSub, a, c), *dtype);
  }
  const double alpha = kSign * *w.number(2);
  if (is_float(*dtype)) {
    return w.done(w.b.apply(MachineOp::kFma, c, w.literal(alpha, c), a), *dtype);
  }
  return w[2].constant.isInt() ? Result(w.b.apply(MachineOp::kAdd, a, w.b.apply(MachineOp::kMul, c, w.literal(alpha, c))))
                               : std::nullopt;
}

// other - alpha * self
Result write_rsub(Writing& w) {
  const ElementArgument swapped[] = {w[1], w[0], w[2]};
  Writing sub(w.b, swapped);
  return write_sum<-1>(sub);
}

// A quotient of integers has the default dtype.
Result write_div(Writing& w) {
  const auto dtype = w.promoted({0, 1});
  if (!dtype || !is_float(*dtype) || (w.size() > 2 && !w.is_none(2))) {
    return std::nullopt;
  }
  return w.done(w.b.apply(MachineOp::kDiv, w.as(0, *dtype), w.as(1, *dtype)), *dtype);
}

template <MachineOp kOp>
Result write_comparison(Writing& w) {
  const auto dtype = w.promoted({0, 1});
  // LibTorch rounds a number to the dtype before it compares.
  if (!dtype || (*dtype == at::kBFloat16 && !(w.is_tensor(0) && w.is_tensor(1)))) {
    return std::nullopt;
  }
  if (*dtype == at::kBool && kOp != MachineOp::kEqual && kOp != MachineOp::kNotEqual) {
    return std::nullopt;
  }
  return w.b.apply(kOp, w.as(0, *dtype), w.as(1, *dtype));
}

Result write_where(Writing& w) {
  const auto dtype = w.promoted({1, 2});
  if (!dtype || !w.is_tensor(0) || w[0].value.type != at::kBool) {
    return std::nullopt;
  }
  return w.done(w.b.apply(MachineOp::kSelect, w[0].value, w.as(1, *dtype), w.as(2, *dtype)), *dtype);
}

// masked_fill(self, mask, value)
Result write_masked_fill(Writing& w) {
  const c10::ScalarType dtype = w[0].value.type;
  if (!w.is_tensor(0) || !w.is_tensor(1) || w[1].value.type != at::kBool || !w.is_value(2) || !is_float(dtype)) {
    return std::nullopt;
  }
  return w.done(w.b.apply(MachineOp::kSelect, w[1].value, w.as(2, dtype), w.as(0, dtype)), dtype);
}

// addcmul(self, tensor1, tensor2, value)
Result write_addcmul(Writing& w) {
  const auto dtype = w.promoted({0, 1, 2});
  if (!dtype || !is_float(*dtype) || !w.is_number(3)) {
    return std::nullopt;
  }
  const Element scaled = w.b.apply(MachineOp::kMul, w.as(3, *dtype), w.as(1, *dtype));
  return w.done(w.b.apply(MachineOp::kFma, scaled, w.as(2, *dtype), w.as(0, *dtype)), *dtype);
}

// ---- bounds ---------------------------------------------------------------------------------------------------------

Result write_bounded(Writing& w, size_t low, size_t high) {
  const c10::ScalarType dtype = w[0].value.type;
  if (!is_float(dtype) || (low != 0 && !w.is_number(low) && !w.is_none(low)) ||
      (high != 0 && !w.is_number(high) && !w.is_none(high))) {
    return std::nullopt;
  }
  Element value = w.as(0, dtype);
  if (low != 0 && w.is_number(low)) {
    value = w.b.apply(MachineOp::kMax, w.as(low, dtype), value);
  }
  if (high != 0 && w.is_number(high)) {
    value = w.b.apply(MachineOp::kMin, w.as(high, dtype), value);
  }
  return w.done(value, dtype);
}
Result write_clamp(Writing& w) { return write_bounded(w, 1, 2); }
Result write_clamp_min(Writing& w) { return write_bounded(w, 1, 0); }
Result write_clamp_max(Writing& w) { return write_bounded(w, 0, 1); }

// ---- functions of one floating element ------------------------------------------------------------------------------

// Writes a function of one floating operand: `compute` gets it in the type in which it computes.
template <typename Compute>
Result write_function(Writing& w, Compute compute) {
  const c10::ScalarType dtype = w[0].value.type;
  if (!w.is_tensor(0) || !is_float(dtype)) {
    return std::nullopt;
  }
  return w.done(compute(w.as(0, dtype)), dtype);
}

template <MachineOp kOp>
Result write_unary(Writing& w) {
  return write_function(w, [&](Element x) { return w.b.apply(kOp, x); });
}

// Of integers, too.
template <MachineOp kOp>
Result write_real_unary(Writing& w) {
  const c10::ScalarType dtype = w[0].value.type;
  if (!w.is_tensor(0) || dtype == at::kBool || dtype == at::kByte) {
    return std::nullopt;
  }
  return w.done(w.b.apply(kOp, w.as(0, dtype)), dtype);
}

Element one_plus_exp_of_negative(Writing& w, Element x) {
  // 0 - x, not -x: as LibTorch writes it.
  const Element exp = w.b.apply(MachineOp::kExp, w.b.apply(MachineOp::kSub, w.literal(0, x), x));
  return w.b.apply(MachineOp::kAdd, w.literal(1, x), exp);
}

Result write_sigmoid(Writing& w) {
  return write_function(
      w, [&](Element x) { return w.b.apply(MachineOp::kDiv, w.literal(1, x), one_plus_exp_of_negative(w, x)); });
}

Result write_silu(Writing& w) {
  return write_function(w, [&](Element x) { return w.b.apply(MachineOp::kDiv, x, one_plus_exp_of_negative(w, x)); });
}

Result write_reciprocal(Writing& w) {
  return write_function(w, [&](Element x) { return w.b.apply(MachineOp::kDiv, w.literal(1, x), x); });
}

Result write_rsqrt(Writing& w) {
  return write_function(
      w, [&](Element x) { return w.b.apply(MachineOp::kDiv, w.literal(1, x), w.b.apply(MachineOp::kSqrt, x)); });
}

// gelu(self, approximate)
Result write_gelu(Writing& w) {
  if (!w[1].constant.isString()) {
    return std::nullopt;
  }
  const bool is_tanh = w[1].constant.toStringRef() == "tanh";
  return write_function(w, [&](Element x) {
    const auto times = [&](Element a, double factor) { return w.b.apply(MachineOp::kMul, a, w.literal(factor, a)); };
    const auto plus_one = [&](Element a) { return w.b.apply(MachineOp::kAdd, w.literal(1, a), a); };
    const Element half = times(x, 0.5);
    if (!is_tanh) {
      return w.b.apply(MachineOp::kMul, half, plus_one(w.b.apply(MachineOp::kErf, times(x, std::numbers::sqrt2 / 2))));
    }
    const Element cube = w.b.apply(MachineOp::kMul, w.b.apply(MachineOp::kMul, x, x), x);
    const Element inner =
        times(w.b.apply(MachineOp::kAdd, x, times(cube, 0.044715)), std::numbers::sqrt2 * std::numbers::inv_sqrtpi);
    return w.b.apply(MachineOp::kMul, half, plus_one(w.b.apply(MachineOp::kTanh, inner)));
  });
}

// elu(self, alpha, scale, input_scale)
Result write_elu(Writing& w) {
  if (!w.is_number(1) || !w.is_number(2) || !w.is_number(3)) {
    return std::nullopt;
  }
  return write_function(w, [&](Element x) {
    const auto times = [&](Element a, double factor) { return w.b.apply(MachineOp::kMul, a, w.literal(factor, a)); };
    const Element below = times(w.b.apply(MachineOp::kExpm1, times(x, *w.number(3))), *w.number(1) * *w.number(2));
    return w.b.apply(MachineOp::kSelect, w.b.apply(MachineOp::kLess, x, w.literal(0, x)), below, times(x, *w.number(2)));
  });
}

// softplus(self, beta, threshold)
Result write_softplus(Writing& w) {
  if (!w.is_number(1) || !w.is_number(2)) {
    return std::nullopt;
  }
  return write_function(w, [&](Element x) {
    const Element beta = w.as(1, x.type);
    const Element scaled = w.b.apply(MachineOp::kMul, x, beta);
    const Element soft = w.b.apply(MachineOp::kDiv, w.b.apply(MachineOp::kLog1p, w.b.apply(MachineOp::kExp, scaled)), beta);
    return w.b.apply(MachineOp::kSelect, w.b.apply(MachineOp::kGreater, scaled, w.as(2, x.type)), x, soft);
  });
}

Result write_mish(Writing& w) {
  return write_function(w, [&](Element x) {
    const Element soft = w.b.apply(MachineOp::kLog1p, w.b.apply(MachineOp::kExp, x));
    return w.b.apply(MachineOp::kMul, x, w.b.apply(MachineOp::kTanh, soft));
  });
}

Result write_relu(Writing& w) {
  const c10::ScalarType dtype = w[0].value.type;
  if (!w.is_tensor(0) || dtype == at::kBool) {
    return std::nullopt;
  }
  const Element x = w.as(0, dtype);
  return w.done(w.b.apply(MachineOp::kMax, w.literal(0, x), x), dtype);
}

// pow(self, exponent): LibTorch computes these exponents by other operations.
Result write_pow(Writing& w) {
  const auto exponent = w.number(1);
  if (!exponent) {
    return std::nullopt;
  }
  return write_function(w, [&](Element x) {
    const auto square = [&] { return w.b.apply(MachineOp::kMul, x, x); };
    const auto inverse = [&](Element a) { return w.b.apply(MachineOp::kDiv, w.literal(1, a), a); };
    if (*exponent == 2) {
      return square();
    }
    if (*exponent == 3) {
      return w.b.apply(MachineOp::kMul, square(), x);
    }
    if (*exponent == 0.5) {
      return w.b.apply(MachineOp::kSqrt, x);
    }
    if (*exponent == -0.5) {
      return inverse(w.b.apply(MachineOp::kSqrt, x));
    }
    if (*exponent == -1) {
      return inverse(x);
    }
    if (*exponent == -2) {
      return inverse(square());
    }
    return w.b.apply(MachineOp::kPow, x, w.literal(*exponent, x));
  });
}

// ---- logic ----------------------------------------------------------------------------------------------------------

template <MachineOp kOp>
Result write_logic(Writing& w) {
  for (size_t i = 0; i < operand_count(kOp); ++i) {
    if (!w.is_tensor(i) || w[i].value.type != at::kBool) {
      return std::nullopt;
    }
  }
  return operand_count(kOp) == 1 ? w.b.apply(kOp, w[0].value) : w.b.apply(kOp, w[0].value, w[1].value);
}

using Write = Result (*)(Writing&);

const std::unordered_map<c10::OperatorName, Write>& rules() {
  static const auto* const table = [] {
    auto* rows = new std::unordered_map<c10::OperatorName, Write>;
    const auto add = [&](const char* name, Write write, std::initializer_list<const char*> overloads = {""}) {
      for (const char* overload : overloads) {
        rows->emplace(c10::OperatorName(std::string("aten::") + name, overload), write);
      }
    };
    add("add", write_sum<1>, {"Tensor", "Scalar"});
    add("sub", write_sum<-1>, {"Tensor", "Scalar"});
    add("rsub", write_rsub, {"Tensor", "Scalar"});
    add("mul", write_arithmetic<MachineOp::kMul>, {"Tensor", "Scalar"});
    add("div", write_div, {"Tensor", "Scalar"});
    add("maximum", write_arithmetic<MachineOp::kMax>);
    add("minimum", write_arithmetic<MachineOp::kMin>);
    add("addcmul", write_addcmul);
    add("eq", write_comparison<MachineOp::kEqual>, {"Tensor", "Scalar"});
    add("ne", write_comparison<MachineOp::kNotEqual>, {"Tensor", "Scalar"});
    add("lt", write_comparison<MachineOp::kLess>, {"Tensor", "Scalar"});
    add("le", write_comparison<MachineOp::kLessEqual>, {"Tensor", "Scalar"});
    add("gt", write_comparison<MachineOp::kGreater>, {"Tensor", "Scalar"});
    add("ge", write_comparison<MachineOp::kGreaterEqual>, {"Tensor", "Scalar"});
    add("where", write_where, {"self", "ScalarSelf", "ScalarOther", "Scalar"});
    add("masked_fill", write_masked_fill, {"Scalar", "Tensor"});
    add("logical_and", write_logic<MachineOp::kAnd>);
    add("logical_or", write_logic<MachineOp::kOr>);
    add("logical_xor", write_logic<MachineOp::kXor>);
    add("logical_not", write_logic<MachineOp::kNot>);
    add("bitwise_and", write_logic<MachineOp::kAnd>, {"Tensor"});
    add("bitwise_or", write_logic<MachineOp::kOr>, {"Tensor"});
    add("bitwise_xor", write_logic<MachineOp::kXor>, {"Tensor"});
    add("bitwise_not", write_logic<MachineOp::kNot>);
    add("clamp", write_clamp);
    add("hardtanh", write_clamp);
    add("clamp_min", write_clamp_min);
    add("clamp_max", write_clamp_max);
    add("relu", write_relu);
    add("abs", write_real_unary<MachineOp::kAbs>);
    add("neg", write_real_unary<MachineOp::kNeg>);
    add("sqrt", write_unary<MachineOp::kSqrt>);
    add("floor", write_unary<MachineOp::kFloor>);
    add("ceil", write_unary<MachineOp::kCeil>);
    add("trunc", write_unary<MachineOp::kTrunc>);
    add("round", write_unary<MachineOp::kRound>);
    add("exp", write_unary<MachineOp::kExp>);
    add("expm1", write_unary<MachineOp::kExpm1>);
    add("log", write_unary<MachineOp::kLog>);
    add("log1p", write_unary<MachineOp::kLog1p>);
    add("log2", write_unary<MachineOp::kLog2>);
    add("log10", write_unary<MachineOp::kLog10>);
    add("tanh", write_unary<MachineOp::kTanh>);
    add("erf", write_unary<MachineOp::kErf>);
    add("erfc", write_unary<MachineOp::kErfc>);
    add("sin", write_unary<MachineOp::kSin>);
    add("cos", write_unary<MachineOp::kCos>);
    add("tan", write_unary<MachineOp::kTan>);
    add("asin", write_unary<MachineOp::kAsin>);
    add("acos", write_unary<MachineOp::kAcos>);
    add("atan", write_unary<MachineOp::kAtan>);
    add("sinh", write_unary<MachineOp::kSinh>);
    add("cosh", write_unary<MachineOp::kCosh>);
    add("pow", write_pow, {"Tensor_Scalar"});
    add("sigmoid", write_sigmoid);
    add("silu", write_silu);
    add("reciprocal", write_reciprocal);
    add("rsqrt", write_rsqrt);
    add("gelu", write_gelu);
    add("elu", write_elu);
    add("softplus", write_softplus);
    add("mish", write_mish);
    add("batch_norm", write_batch_norm);
    return rows;
  }();
  return *table;
}

// ---- operators by their bodies --------------------------------------------------------------------------------------

// Returns the operator's body, compiled once.
const Graph& body_of(const Op& op) {
  static std::mutex mutex;
  static auto* const bodies = new std::unordered_map<const Op*, std::unique_ptr<Graph>>;
  const std::lock_guard<std::mutex> lock(mutex);
  std::unique_ptr<Graph>& body = (*bodies)[&op];
  if (body == nullptr) {
    body = compile_body(op);
  }
  return *body;
}

// Rounds to bfloat16 once, at the end, as LibTorch's kernels do.
Result write_body(ProgramBuilder& builder, const Op& op, Arguments arguments) {
  const Graph& body = body_of(op);
  if (body.inputs().size() != arguments.size()) {
    return std::nullopt;
  }
  bool is_reduced = false;
  bool is_all_reduced = true;
  std::unordered_map<const Value*, ElementArgument> known;
  for (size_t i = 0; i < arguments.size(); ++i) {
    ElementArgument argument = arguments[i];
    if (argument.kind == Kind::kTensor) {
      is_reduced = is_reduced || argument.value.type == at::kBFloat16;
      is_all_reduced = is_all_reduced && argument.value.type == at::kBFloat16;
      argument.value = builder.convert(argument.value, compute_type(argument.value.type));
    }
    known[body.inputs()[i]] = argument;
  }
  if (is_reduced && !is_all_reduced) {
    return std::nullopt;
  }
  for (const Node* node : body.body().nodes()) {
    if (node->kind() == prim::Constant) {
      known[node->output()] = {.constant = *node->output()->constant()};
      continue;
    }
    if (node->schema() == nullptr || node->outputs().size() != 1) {
      return std::nullopt;
    }
    std::vector<ElementArgument> operands;
    for (const Value* input : node->inputs()) {
      operands.push_back(known.at(input));
    }
    // `type_as` restores the dtype that a `where` with numbers may have widened; elements have it already.
    const bool is_type_as = node->kind() == aten::type_as;
    const Result result = is_type_as ? Result(builder.convert(operands[0].value, operands[1].value.type))
                                     : write_operator(builder, node->op(), operands);
    if (!result) {
      return std::nullopt;
    }
    const bool is_zero_dim = std::all_of(operands.begin(), operands.end(), [](const ElementArgument& operand) {
      return operand.kind != Kind::kTensor || operand.is_zero_dim;
    });
    known[node->output()] = {.kind = Kind::kTensor, .value = *result, .is_zero_dim = is_zero_dim};
  }
  const Element result = known.at(body.outputs()[0]).value;
  return is_reduced && result.type == at::kFloat ? builder.convert(result, at::kBFloat16) : result;
}

}  // namespace

bool has_element_rule(const Op& op) {
  return op.schema != nullptr && (rules().contains(op.schema->operator_name()) || may_fold(op) || !op.body.empty());
}

std::optional<Element> write_operator(ProgramBuilder& builder, const Op& op, Arguments arguments) {
  const auto rule = rules().find(op.schema->operator_name());
  if (rule != rules().end()) {
    Writing writing(builder, arguments);
    return rule->second(writing);
  }
  if (may_fold(op)) {
    Writing writing(builder, arguments);
    return write_fold(writing, op);
  }
  return op.body.empty() ? std::nullopt : write_body(builder, op, arguments);
}

}  // namespace sconce
