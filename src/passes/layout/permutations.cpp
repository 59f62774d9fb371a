#include "passes/layout/permutations.h"

#include "analysis/list_writes.h"
#include "ir/constant_operands.h"

#include <algorithm>
#include <numeric>

namespace sconce {
namespace {

using Permutation = std::vector<size_t>;

bool are_same(const Value& a, const Value& b) {
  const auto* first = a.constant();
  const auto* second = b.constant();
  return &a == &b || (first && second && first->isInt() && second->isInt() && first->toInt() == second->toInt());
}

bool is_identity(const Permutation& order) { return std::is_sorted(order.begin(), order.end()); }

bool is_permutation(const Permutation& order) {
  Permutation sorted = order;
  std::sort(sorted.begin(), sorted.end());
  Permutation identity(order.size());
  std::iota(identity.begin(), identity.end(), 0);
  return sorted == identity;
}

// Returns the order in the list operand of an aten::permute.
std::optional<Permutation> order_of_list(const Value& list) {
  Permutation order;
  if (list.node()->kind() == prim::ListConstruct) {
    const auto uses = list.uses();
    if (!std::all_of(uses.begin(), uses.end(), [](const Use& use) { return only_reads_list(*use.user, use.index); })) {
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

// Returns the rank of the permutation's operand and result.
std::optional<size_t> rank_of(const Node& permutation) {
  if (permutation.kind() == aten::permute) {
    const auto order = order_of_list(*permutation.input(1));
    return order ? std::optional(order->size()) : std::nullopt;
  }
  for (const Value* value : {permutation.input(0), permutation.output()}) {
    if (value->facts() != nullptr && value->facts()->sizes) {
      return value->facts()->sizes->size();
    }
  }
  return std::nullopt;
}

std::optional<Permutation> order_of(const Node& node, size_t rank) {
  if (node.kind() == aten::permute) {
    const auto order = order_of_list(*node.input(1));
    return order && order->size() == rank ? order : std::nullopt;
  }
  Permutation order(rank);
  std::iota(order.begin(), order.end(), 0);
  if (node.kind() == aten::t) {
    std::reverse(order.begin(), order.end());
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

// Returns whether an aten::transpose swaps the two dimensions of a matrix. It raises for fewer dimensions.
bool swaps_two(const Node& node) {
  if (node.kind() != aten::transpose) {
    return false;
  }
  const auto first = constant_index(*node.input(1), 2);
  const auto second = constant_index(*node.input(2), 2);
  return first && second && *first != *second;
}

std::optional<size_t> common_rank(const Node& node, const Node& inner) {
  if (const auto rank = rank_of(node)) {
    return rank;
  }
  if (const auto rank = rank_of(inner)) {
    return rank;
  }
  // `t` accepts at most two dimensions.
  const bool is_matrix = (node.kind() == aten::t && swaps_two(inner)) || (inner.kind() == aten::t && swaps_two(node));
  return is_matrix ? std::optional<size_t>(2) : std::nullopt;
}

// Returns whether both swap the same two dimensions, whatever the rank is.
bool swap_the_same(const Node& a, const Node& b) {
  if (a.kind() == aten::t) {
    return b.kind() == aten::t;
  }
  return a.kind() == aten::transpose && b.kind() == aten::transpose && a.schema() == b.schema() &&
         ((are_same(*a.input(1), *b.input(1)) && are_same(*a.input(2), *b.input(2))) ||
          (are_same(*a.input(1), *b.input(2)) && are_same(*a.input(2), *b.input(1))));
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
  if ((order && is_identity(*order)) || (node.kind() == aten::transpose && are_same(*node.input(1), *node.input(2)))) {
    return operand;
  }
  const Node& inner = *operand->node();
  if (!permutes(inner)) {
    return nullptr;
  }
  const auto both = order_of_both(node);
  return swap_the_same(node, inner) || (both && is_identity(*both)) ? inner.input(0) : nullptr;
}

std::optional<std::vector<size_t>> order_of_both(const Node& node) {
  const Node& inner = *node.input(0)->node();
  const auto rank = permutes(inner) ? common_rank(node, inner) : std::nullopt;
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
