#include "fusion/folds.h"

#include <ATen/WrapDimUtils.h>

#include <unordered_map>

namespace sconce {
namespace {

// Dimensions that are the last of a tensor of `rank` dimensions, in any order.
std::optional<int64_t> last_dims(c10::ArrayRef<int64_t> dims, int64_t rank) {
  std::vector<bool> is_folded(static_cast<size_t>(rank), false);
  for (const int64_t dim : dims) {
    if (dim < -rank || dim >= rank) {
      return std::nullopt;  // the operator reports it
    }
    is_folded[static_cast<size_t>(dim < 0 ? dim + rank : dim)] = true;
  }
  const auto count = static_cast<int64_t>(dims.size());
  for (int64_t i = 0; i < rank; ++i) {
    if (is_folded[static_cast<size_t>(i)] != (i >= rank - count)) {
      return std::nullopt;
    }
  }
  return count;
}

// (self, dim, …)
std::optional<Fold> fold_one(const Node& node, int64_t rank) {
  const c10::IValue* dim = node.input(1)->constant();
  if (dim == nullptr || !dim->isInt()) {
    return std::nullopt;
  }
  const auto last = last_dims({dim->toInt()}, rank);
  return last ? std::optional(Fold{*last, Fold::Result::kWhole}) : std::nullopt;
}

// (self, dims, keepdim, …); no dims, or None, mean all
std::optional<Fold> fold_several(const Node& node, int64_t rank) {
  const c10::IValue* dims = node.input(1)->constant();
  const c10::IValue* keeps = node.input(2)->constant();
  if (dims == nullptr || keeps == nullptr || !keeps->isBool() || !(dims->isIntList() || dims->isNone())) {
    return std::nullopt;
  }
  const std::vector<int64_t> named = dims->isNone() ? std::vector<int64_t>{} : dims->toIntVector();
  const auto last = named.empty() ? std::optional(rank) : last_dims(named, rank);
  return last ? std::optional(Fold{*last, keeps->toBool() ? Fold::Result::kKept : Fold::Result::kDropped}) : std::nullopt;
}

std::optional<Fold> fold_all(const Node& /*node*/, int64_t rank) { return Fold{rank, Fold::Result::kDropped}; }

// (input, normalized_shape, …)
std::optional<Fold> fold_normalized(const Node& node, int64_t rank) {
  const c10::IValue* shape = node.input(1)->constant();
  if (shape == nullptr || !shape->isIntList()) {
    return std::nullopt;
  }
  const auto count = static_cast<int64_t>(shape->toIntVector().size());
  return count <= rank ? std::optional(Fold{count, Fold::Result::kWhole}) : std::nullopt;
}

// Writes an operator of one floating tensor, computed in float32 or float64.
template <typename Compute>
Result write_of_floats(Writing& w, Compute compute) {
  const c10::ScalarType dtype = w[0].value.type;
  return w.is_tensor(0) && c10::isFloatingType(dtype) ? Result(w.done(compute(w.as(0, dtype)), dtype)) : std::nullopt;
}

Element mean_of(Writing& w, Element x) {
  return w.b.apply(MachineOp::kDiv, w.b.apply(MachineOp::kSum, x), w.b.row_length(x.type));
}

// softmax(self, dim, dtype)
Result write_softmax(Writing& w) {
  return !w.is_none(2) ? std::nullopt : write_of_floats(w, [&](Element x) {
    const Element from_largest = w.b.apply(MachineOp::kSub, x, w.b.apply(MachineOp::kLargest, x));
    const Element exp = w.b.apply(MachineOp::kExp, from_largest);
    return w.b.apply(MachineOp::kDiv, exp, w.b.apply(MachineOp::kSum, exp));
  });
}

Result write_log_softmax(Writing& w) {
  return !w.is_none(2) ? std::nullopt : write_of_floats(w, [&](Element x) {
    const Element from_largest = w.b.apply(MachineOp::kSub, x, w.b.apply(MachineOp::kLargest, x));
    const Element sum = w.b.apply(MachineOp::kSum, w.b.apply(MachineOp::kExp, from_largest));
    return w.b.apply(MachineOp::kSub, from_largest, w.b.apply(MachineOp::kLog, sum));
  });
}

// sum(self, dim, keepdim, dtype), mean(…), sum(self, dtype), mean(self, dtype): the dtype is the last argument
Result write_sum_of_row(Writing& w) {
  return !w.is_none(w.size() - 1) ? std::nullopt
                                  : write_of_floats(w, [&](Element x) { return w.b.apply(MachineOp::kSum, x); });
}
Result write_mean_of_row(Writing& w) {
  return !w.is_none(w.size() - 1) ? std::nullopt : write_of_floats(w, [&](Element x) { return mean_of(w, x); });
}

// amax(self, dim, keepdim)
Result write_amax(Writing& w) {
  return write_of_floats(w, [&](Element x) { return w.b.apply(MachineOp::kLargest, x); });
}

// layer_norm(input, normalized_shape, weight, bias, eps, cudnn_enable)
Result write_layer_norm(Writing& w) {
  const auto is_like_input = [&](size_t i) { return w.is_tensor(i) && w[i].value.type == w[0].value.type; };
  if (!(w.is_none(2) || is_like_input(2)) || !(w.is_none(3) || is_like_input(3)) || !w.is_number(4)) {
    return std::nullopt;
  }
  return write_of_floats(w, [&](Element x) {
    const Element centered = w.b.apply(MachineOp::kSub, x, mean_of(w, x));
    const Element variance = mean_of(w, w.b.apply(MachineOp::kMul, centered, centered));
    const Element deviation = w.b.apply(MachineOp::kSqrt, w.b.apply(MachineOp::kAdd, variance, w.as(4, x.type)));
    Element y = w.b.apply(MachineOp::kMul, centered, w.b.apply(MachineOp::kDiv, w.literal(1, x), deviation));
    if (w.is_tensor(2)) {
      y = w.b.apply(MachineOp::kMul, y, w.as(2, w[0].value.type));
    }
    return w.is_tensor(3) ? w.b.apply(MachineOp::kAdd, y, w.as(3, w[0].value.type)) : y;
  });
}

struct FoldRule {
  std::optional<Fold> (*dims)(const Node& node, int64_t rank);
  Result (*write)(Writing& w);
};

const FoldRule* rule_of(const Op& op) {
  static const auto* const rules = new std::unordered_map<c10::OperatorName, FoldRule>{
      {{"aten::softmax", "int"}, {fold_one, write_softmax}},
      {{"aten::log_softmax", "int"}, {fold_one, write_log_softmax}},
      {{"aten::sum", ""}, {fold_all, write_sum_of_row}},
      {{"aten::sum", "dim_IntList"}, {fold_several, write_sum_of_row}},
      {{"aten::mean", ""}, {fold_all, write_mean_of_row}},
      {{"aten::mean", "dim"}, {fold_several, write_mean_of_row}},
      {{"aten::amax", ""}, {fold_several, write_amax}},
      {{"aten::layer_norm", ""}, {fold_normalized, write_layer_norm}},
  };
  const auto found = op.schema == nullptr ? rules->end() : rules->find(op.schema->operator_name());
  return found == rules->end() ? nullptr : &found->second;
}

}  // namespace

bool may_fold(const Op& op) { return rule_of(op) != nullptr; }

std::optional<Fold> fold_of(const Node& node, int64_t rank) { return rule_of(node.op())->dims(node, rank); }

std::optional<Element> write_fold(Writing& writing, const Op& op) { return rule_of(op)->write(writing); }

}  // namespace sconce
