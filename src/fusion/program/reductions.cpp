#include "fusion/program/reductions.h"

#include <ATen/WrapDimUtils.h>

#include <cmath>
#include <limits>
#include <unordered_map>

namespace sconce {
namespace {

// Returns the last `count` of `rank` dimensions.
DimSet last_dims(int64_t count, int64_t rank) {
  DimSet dims;
  for (int64_t dim = rank - count; dim < rank; ++dim) {
    dims.set(static_cast<size_t>(dim));
  }
  return dims;
}

// Returns nothing for dimensions that the operator rejects.
std::optional<DimSet> dims_of(c10::ArrayRef<int64_t> named, int64_t rank) {
  DimSet dims;
  for (const int64_t dim : named) {
    const auto place = static_cast<size_t>(dim < 0 ? dim + rank : dim);
    if (dim < -rank || dim >= rank || dims[place]) {
      return std::nullopt;
    }
    dims.set(place);
  }
  return dims;
}

// (self, dim, …)
std::optional<Reduction> reduce_last(const Node& node, int64_t rank) {
  const c10::IValue* dim = node.input(1)->constant();
  const bool is_last = dim != nullptr && dim->isInt() && rank > 0 && (dim->toInt() == -1 || dim->toInt() == rank - 1);
  return is_last ? std::optional(Reduction{last_dims(1, rank), Reduction::Result::kWhole}) : std::nullopt;
}

// (self, dim, keepdim, …)
std::optional<Reduction> reduce_one_away(const Node& node, int64_t rank) {
  const c10::IValue* dim = node.input(1)->constant();
  const c10::IValue* keeps = node.input(2)->constant();
  if (dim == nullptr || !dim->isInt() || keeps == nullptr || !keeps->isBool()) {
    return std::nullopt;
  }
  const auto dims = dims_of({dim->toInt()}, rank);
  return dims ? std::optional(Reduction{*dims, keeps->toBool() ? Reduction::Result::kKept : Reduction::Result::kDropped})
              : std::nullopt;
}

// Dimensions and keepdim at these positions; no dimensions, or None, mean all.
template <size_t kDims = 1, size_t kKeeps = 2>
std::optional<Reduction> reduce_several(const Node& node, int64_t rank) {
  const c10::IValue* given = node.input(kDims)->constant();
  const c10::IValue* keeps = node.input(kKeeps)->constant();
  if (given == nullptr || keeps == nullptr || !keeps->isBool() || !(given->isIntList() || given->isNone())) {
    return std::nullopt;
  }
  const std::vector<int64_t> named = given->isNone() ? std::vector<int64_t>{} : given->toIntVector();
  const auto dims = named.empty() ? std::optional(last_dims(rank, rank)) : dims_of(named, rank);
  return dims ? std::optional(Reduction{*dims, keeps->toBool() ? Reduction::Result::kKept : Reduction::Result::kDropped})
              : std::nullopt;
}

std::optional<Reduction> reduce_all(const Node& /*node*/, int64_t rank) {
  return Reduction{last_dims(rank, rank), Reduction::Result::kDropped};
}

// (input, normalized_shape, …)
template <bool kIsComposed>
std::optional<Reduction> reduce_normalized(const Node& node, int64_t rank) {
  const c10::IValue* shape = node.input(1)->constant();
  if (shape == nullptr || !shape->isIntList()) {
    return std::nullopt;
  }
  const std::vector<int64_t> sizes = shape->toIntVector();
  const auto count = static_cast<int64_t>(sizes.size());
  return count <= rank ? std::optional(Reduction{last_dims(count, rank), Reduction::Result::kWhole, kIsComposed, sizes})
                       : std::nullopt;
}

// Writes an operator of one floating tensor, computed in float32 or float64.
template <typename Compute>
Result write_of_floats(RuleArguments& args, Compute compute) {
  const c10::ScalarType dtype = args[0].value.type;
  return args.is_tensor(0) && c10::isFloatingType(dtype) ? Result(args.done(compute(args.as(0, dtype)), dtype))
                                                         : std::nullopt;
}

Element mean_of(RuleArguments& args, Element x) {
  return args.b.apply(MachineOp::kDiv, args.b.apply(MachineOp::kSum, x), args.b.row_length(x.type));
}

// softmax(self, dim, dtype)
Result write_softmax(RuleArguments& args) {
  return !args.is_none(2) ? std::nullopt : write_of_floats(args, [&](Element x) {
    const Element from_largest = args.b.apply(MachineOp::kSub, x, args.b.apply(MachineOp::kLargest, x));
    const Element exp = args.b.apply(MachineOp::kExp, from_largest);
    return args.b.apply(MachineOp::kDiv, exp, args.b.apply(MachineOp::kSum, exp));
  });
}

Result write_log_softmax(RuleArguments& args) {
  return !args.is_none(2) ? std::nullopt : write_of_floats(args, [&](Element x) {
    const Element from_largest = args.b.apply(MachineOp::kSub, x, args.b.apply(MachineOp::kLargest, x));
    const Element sum = args.b.apply(MachineOp::kSum, args.b.apply(MachineOp::kExp, from_largest));
    return args.b.apply(MachineOp::kSub, from_largest, args.b.apply(MachineOp::kLog, sum));
  });
}

// sum(self, dim, keepdim, dtype), mean(…), sum(self, dtype), mean(self, dtype): the dtype is the last argument
Result write_sum_of_row(RuleArguments& args) {
  return !args.is_none(args.size() - 1) ? std::nullopt
                                        : write_of_floats(args, [&](Element x) { return args.b.apply(MachineOp::kSum, x); });
}
Result write_mean_of_row(RuleArguments& args) {
  return !args.is_none(args.size() - 1) ? std::nullopt : write_of_floats(args, [&](Element x) { return mean_of(args, x); });
}

// amax(self, dim, keepdim), amin(…)
template <MachineOp kOp>
Result write_extreme(RuleArguments& args) {
  return write_of_floats(args, [&](Element x) { return args.b.apply(kOp, x); });
}

// prod(self, dim, keepdim, dtype), prod(self, dtype)
Result write_product_of_row(RuleArguments& args) {
  return !args.is_none(args.size() - 1)
             ? std::nullopt
             : write_of_floats(args, [&](Element x) { return args.b.apply(MachineOp::kProduct, x); });
}

// logsumexp(self, dim, keepdim)
Result write_log_of_sum_of_row(RuleArguments& args) {
  return write_of_floats(args, [&](Element x) {
    const Element largest = args.b.apply(MachineOp::kLargest, x);
    const Element infinity = args.literal(std::numeric_limits<double>::infinity(), x);
    const Element is_infinite = args.equal(args.b.apply(MachineOp::kAbs, largest), infinity);
    const Element from = args.select(is_infinite, args.literal(0, x), largest);
    const Element sum = args.b.apply(MachineOp::kSum, args.b.apply(MachineOp::kExp, args.sub(x, from)));
    return args.add(args.b.apply(MachineOp::kLog, sum), from);
  });
}

// norm(self, p, dim, keepdim), norm(self, p), linalg_vector_norm(self, ord, dim, keepdim, dtype): of order 1, 2 or infinity
Result write_norm_of_row(RuleArguments& args) {
  if ((!args.is_none(1) && !args.is_number(1)) || (args.size() == 5 && !args.is_none(4))) {
    return std::nullopt;
  }
  const double order = args.number(1).value_or(2);
  if (order != 1 && order != 2 && !std::isinf(order)) {
    return std::nullopt;
  }
  return write_of_floats(args, [&](Element x) {
    const Element size = args.b.apply(MachineOp::kAbs, x);
    return order == 1   ? args.b.apply(MachineOp::kSum, size)
           : order == 2 ? args.b.apply(MachineOp::kSqrt, args.b.apply(MachineOp::kSum, args.mul(x, x)))
                        : args.b.apply(order > 0 ? MachineOp::kLargest : MachineOp::kSmallest, size);
  });
}

// var(self, dim, correction, keepdim), var(self, dim, unbiased, keepdim), var(self, unbiased); std(…)
template <size_t kCorrection, bool kIsRoot>
Result write_variance_of_row(RuleArguments& args) {
  if (!args.is_none(kCorrection) && !args.is_number(kCorrection)) {
    return std::nullopt;
  }
  // `unbiased` is a correction of 1. LibTorch takes one of NaN for larger than every length.
  const double given = args.number(kCorrection).value_or(1);
  const double correction = std::isnan(given) ? std::numeric_limits<double>::infinity() : given;
  return write_of_floats(args, [&](Element x) {
    const Element centered = args.sub(x, mean_of(args, x));
    const Element sum = args.b.apply(MachineOp::kSum, args.mul(centered, centered));
    const Element count = args.sub(args.b.row_length(x.type), args.literal(correction, x));
    const Element variance = args.div(sum, args.b.apply(MachineOp::kMax, args.literal(0, x), count));
    return kIsRoot ? args.b.apply(MachineOp::kSqrt, variance) : variance;
  });
}

// rms_norm(input, normalized_shape, weight, eps)
Result write_rms_norm(RuleArguments& args) {
  const c10::ScalarType dtype = args.type(0);
  const bool has_weight = args.is_tensor(2) && args.type(2) == dtype;
  if ((!args.is_none(2) && !has_weight) || (!args.is_none(3) && !args.is_number(3)) || c10::isReducedFloatingType(dtype)) {
    return std::nullopt;
  }
  const double epsilon = args.number(3).value_or(dtype == at::kDouble ? std::numeric_limits<double>::epsilon()
                                                                      : std::numeric_limits<float>::epsilon());
  return write_of_floats(args, [&](Element x) {
    const Element mean = args.add(mean_of(args, args.mul(x, x)), args.literal(epsilon, x));
    const Element y = args.mul(x, args.inverse(args.b.apply(MachineOp::kSqrt, mean)));
    return has_weight ? args.mul(y, args.as(2, dtype)) : y;
  });
}

// layer_norm(input, normalized_shape, weight, bias, eps, cudnn_enable)
Result write_layer_norm(RuleArguments& args) {
  const auto is_like_input = [&](size_t i) { return args.is_tensor(i) && args[i].value.type == args[0].value.type; };
  if (!(args.is_none(2) || is_like_input(2)) || !(args.is_none(3) || is_like_input(3)) || !args.is_number(4)) {
    return std::nullopt;
  }
  return write_of_floats(args, [&](Element x) {
    const Element centered = args.b.apply(MachineOp::kSub, x, mean_of(args, x));
    const Element variance = mean_of(args, args.b.apply(MachineOp::kMul, centered, centered));
    const Element deviation = args.b.apply(MachineOp::kSqrt, args.b.apply(MachineOp::kAdd, variance, args.as(4, x.type)));
    Element y = args.b.apply(MachineOp::kMul, centered, args.b.apply(MachineOp::kDiv, args.literal(1, x), deviation));
    if (args.is_tensor(2)) {
      y = args.b.apply(MachineOp::kMul, y, args.as(2, args[0].value.type));
    }
    return args.is_tensor(3) ? args.b.apply(MachineOp::kAdd, y, args.as(3, args[0].value.type)) : y;
  });
}

struct ReductionRule {
  std::optional<Reduction> (*dims)(const Node& node, int64_t rank);
  Result (*write)(RuleArguments& args);
};

const ReductionRule* rule_of(const Op& op) {
  static const auto* const rules = new std::unordered_map<c10::OperatorName, ReductionRule>{
      {{"aten::softmax", "int"}, {reduce_last, write_softmax}},
      {{"aten::log_softmax", "int"}, {reduce_last, write_log_softmax}},
      {{"aten::sum", ""}, {reduce_all, write_sum_of_row}},
      {{"aten::sum", "dim_IntList"}, {reduce_several<>, write_sum_of_row}},
      {{"aten::mean", ""}, {reduce_all, write_mean_of_row}},
      {{"aten::mean", "dim"}, {reduce_several<>, write_mean_of_row}},
      {{"aten::amax", ""}, {reduce_several<>, write_extreme<MachineOp::kLargest>}},
      {{"aten::amin", ""}, {reduce_several<>, write_extreme<MachineOp::kSmallest>}},
      {{"aten::prod", ""}, {reduce_all, write_product_of_row}},
      {{"aten::prod", "dim_int"}, {reduce_one_away, write_product_of_row}},
      {{"aten::logsumexp", ""}, {reduce_several<>, write_log_of_sum_of_row}},
      {{"aten::norm", "Scalar"}, {reduce_all, write_norm_of_row}},
      {{"aten::norm", "ScalarOpt_dim"}, {reduce_several<2, 3>, write_norm_of_row}},
      {{"aten::linalg_vector_norm", ""}, {reduce_several<2, 3>, write_norm_of_row}},
      {{"aten::var", ""}, {reduce_all, write_variance_of_row<1, false>}},
      {{"aten::var", "dim"}, {reduce_several<1, 3>, write_variance_of_row<2, false>}},
      {{"aten::var", "correction"}, {reduce_several<1, 3>, write_variance_of_row<2, false>}},
      {{"aten::std", ""}, {reduce_all, write_variance_of_row<1, true>}},
      {{"aten::std", "dim"}, {reduce_several<1, 3>, write_variance_of_row<2, true>}},
      {{"aten::std", "correction"}, {reduce_several<1, 3>, write_variance_of_row<2, true>}},
      {{"aten::rms_norm", ""}, {reduce_normalized<true>, write_rms_norm}},
      {{"aten::layer_norm", ""}, {reduce_normalized<false>, write_layer_norm}},
  };
  const auto found = op.schema == nullptr ? rules->end() : rules->find(op.schema->operator_name());
  return found == rules->end() ? nullptr : &found->second;
}

}  // namespace

bool may_reduce(const Op& op) { return rule_of(op) != nullptr; }

std::optional<Reduction> reduction_of(const Node& node, int64_t rank) {
  return rank <= static_cast<int64_t>(DimSet().size()) ? rule_of(node.op())->dims(node, rank) : std::nullopt;
}

bool may_share_kernel(const Node& reduction, const Node& other) {
  struct Reduced {
    DimSet dims;
    int64_t rank;
    bool are_last;
    bool operator==(const Reduced&) const = default;
  };
  // If the rank is unknown, the first dimension counts as an outer one.
  const auto reduced = [](const Node& node) {
    const TensorFacts* facts = node.input(0)->facts();
    const bool is_known = facts != nullptr && facts->sizes;
    const auto rank = static_cast<int64_t>(is_known ? facts->sizes->size() : DimSet().size());
    const auto how = reduction_of(node, rank);
    const DimSet dims = how ? how->dims : DimSet();
    return Reduced{dims, rank,
                   is_known ? dims == last_dims(static_cast<int64_t>(dims.count()), rank) : !dims[0] || dims.all()};
  };
  const Reduced a = reduced(reduction);
  const Reduced b = reduced(other);
  return (a.are_last && b.are_last) || a == b;
}

std::optional<Element> write_reduction(RuleArguments& args, const Op& op) { return rule_of(op)->write(args); }

}  // namespace sconce
