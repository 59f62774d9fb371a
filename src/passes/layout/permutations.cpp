#include "passes/layout/permutations.h"

#include "analysis/memory/list_writes.h"
#include "ir/constant_operands.h"

#include <algorithm>
#include <numeric>

namespace sconce {
namespace {

using Permutation = std::vector<size_t>;

bool is_identity(const Permutation& order) { return std::ranges::is_sorted(order); }

bool is_permutation(const Permutation& order) {
  Permutation sorted = order;
  std::ranges::sort(sorted);
  Permutation identity(order.size());
  std::iota(identity.begin(), identity.end(), 0);
  return sorted == identity;
}

// Returns the order in the list operand of an aten::permute.
std::optional<Permutation> order_of_list(const Value& list) {
  Permutation order;
  if (list.node()->kind() == prim::ListConstruct) {
    if (!std::ranges::all_of(list.uses(), [](const Use& use) { return only_reads_list(*use.user, use.index); })) {
      return std::nullopt;
    }
    const auto dims = list.node()->inputs();
    for (const Value* dim : dims) {
      const auto position = constant_index(*dim, dims.size());
      if (!position) {
        return std::nullopt;
      }
      order.push_back(*position);
    }
  } else {
    const auto* constant = list.constant();
    if (!constant || !constant->isIntList()) {
      return std::nullopt;
    }
    const auto dims = constant->toIntVector();
    for (const int64_t dim : dims) {
      const auto position = position_among(dims.size(), dim);
      if (!position) {
        return std::nullopt;
      }
      order.push_back(*position);
    }
  }
  return is_permutation(order) ? std::optional(order) : std::nullopt;
}

// Returns the rank of the permutation's operand and result as facts know it: for another rank the operator raises.
std::optional<size_t> rank_of(const Node& permutation) {
  for (const Value* value : {permutation.input(0), permutation.output()}) {
    if (value->facts() != nullptr && value->facts()->sizes) {
      return value->facts()->sizes->size();
    }
  }
  return std::nullopt;
}

// Returns nothing for an order that is not known, or that the operator rejects for the rank.
std::optional<Permutation> order_of(const Node& node, size_t rank) {
  if (node.kind() == aten::permute) {
    const auto order = order_of_list(*node.input(1));
    return order && order->size() == rank ? order : std::nullopt;
  }
  Permutation order(rank);
  std::iota(order.begin(), order.end(), 0);
  if (node.kind() == aten::t) {
    std::ranges::reverse(order);
    return rank <= 2 ? std::optional(order) : std::nullopt;
  }
  const auto first = constant_index(*node.input(1), rank);
  const auto second = constant_index(*node.input(2), rank);
  if (!first || !second) {
    return std::nullopt;
  }
  std::swap(order[*first], order[*second]);
  return order;
}

}  // namespace

bool permutes(const Node& node) {
  return node.schema() != nullptr && (node.kind() == aten::permute || node.kind() == aten::t ||
                                      // the other overload takes names of dimensions
                                      (node.kind() == aten::transpose && node.schema()->overload_name() == "int"));
}

Value* permuted_back(const Node& node) {
  Value* operand = node.input(0);
  const auto rank = rank_of(node);
  const auto order = rank ? order_of(node, *rank) : std::nullopt;
  if (order && is_identity(*order)) {
    return operand;
  }
  const auto both = order_of_both(node);
  return both && is_identity(*both) ? operand->node()->input(0) : nullptr;
}

std::optional<std::vector<size_t>> order_of_both(const Node& node) {
  const Node& inner = *node.input(0)->node();
  if (!permutes(inner)) {
    return std::nullopt;
  }
  const auto rank = rank_of(node) ? rank_of(node) : rank_of(inner);
  const auto outer_order = rank ? order_of(node, *rank) : std::nullopt;
  const auto inner_order = outer_order ? order_of(inner, *rank) : std::nullopt;
  if (!inner_order) {
    return std::nullopt;
  }
  Permutation order;
  for (const size_t dim : *outer_order) {
    order.push_back((*inner_order)[dim]);
  }
  return order;
}

}  // namespace sconce
