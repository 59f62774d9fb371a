// Questions about sizes and strides, answered by facts. False if a fact is missing.
#pragma once

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

inline bool is_contiguous(const TensorFacts* facts) { return has_layout(facts, c10::MemoryFormat::Contiguous); }

// Calls `visit` with every node whose result another tensor with equal elements may replace, as far as the graph decides:
//   - the graph changes no sizes in place and does not walk autograd's graph;
//   - the node calls an operator with operands and one result.
// `visit` may erase its node, and returns whether it changed the graph. Returns whether a visit did.
bool for_each_replaceable_result(const Graph& graph, c10::function_ref<bool(Node&)> visit);

}  // namespace sconce
