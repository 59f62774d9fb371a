// Questions about sizes and strides, answered by facts. False if a fact is missing.
#pragma once

#include "analysis/effects.h"
#include "ir/facts.h"
#include "ir/graph.h"

#include <c10/core/MemoryFormat.h>

#include <algorithm>
#include <vector>

namespace sconce {

// Returns whether a tensor with `facts` broadcasts to the sizes of a tensor with `wanted`.
inline bool broadcasts_to(const TensorFacts* facts, const TensorFacts* wanted) {
  if (facts == nullptr || wanted == nullptr || !facts->sizes || !wanted->sizes ||
      facts->sizes->size() > wanted->sizes->size()) {
    return false;
  }
  return std::equal(
      facts->sizes->rbegin(), facts->sizes->rend(), wanted->sizes->rbegin(),
      [](const Dim& from, const Dim& to) { return from == Dim::known(1) || (from == to && !from.is_unknown()); });
}

// Returns whether the sizes are known and the strides are those of a new tensor of these sizes and this format.
inline bool has_layout(const TensorFacts* facts, c10::MemoryFormat format) {
  if (facts == nullptr || !facts->sizes || !facts->strides) {
    return false;
  }
  const auto& sizes = *facts->sizes;
  const auto& strides = *facts->strides;
  // Dimensions by growing stride: the elements of the first are adjacent in memory.
  std::vector<size_t> inner_first;
  if (format == c10::MemoryFormat::Contiguous) {
    for (size_t i = sizes.size(); i-- > 0;) {
      inner_first.push_back(i);
    }
  } else if (format == c10::MemoryFormat::ChannelsLast && sizes.size() == 4) {
    inner_first = {1, 3, 2, 0};
  } else if (format == c10::MemoryFormat::ChannelsLast3d && sizes.size() == 5) {
    inner_first = {1, 4, 3, 2, 0};
  } else {
    return false;
  }
  int64_t expected = 1;
  for (const size_t i : inner_first) {
    if (!sizes[i].is_known() || strides[i] != Dim::known(expected)) {
      return false;
    }
    expected *= sizes[i].value();
    if (expected == 0) {  // for empty tensors each format has strides of its own
      if (format != c10::MemoryFormat::Contiguous) {
        return false;
      }
      expected = std::max<int64_t>(strides[i].value(), 1);
    }
  }
  return true;
}

// Returns whether the graph changes sizes in place or walks autograd's graph. A tensor must then not be replaced by another
// one with equal elements.
inline bool distinguishes_equal_tensors(const Graph& graph) {
  bool may_differentiate = false;
  for_each_node(graph.body(), [&](Node* node) { may_differentiate = may_differentiate || node->op().differentiates; });
  return may_differentiate || may_change_sizes(graph);
}

inline bool is_contiguous(const TensorFacts* facts) { return has_layout(facts, c10::MemoryFormat::Contiguous); }

}  // namespace sconce
