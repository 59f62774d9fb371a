// What facts say of sizes and strides. False wherever they are silent.
#pragma once

#include "analysis/effects.h"
#include "ir/facts.h"
#include "ir/graph.h"

#include <c10/core/MemoryFormat.h>

#include <algorithm>
#include <vector>

namespace sconce {

// Whether a tensor with `facts` broadcasts to the sizes of one with `wanted`, and not the other way round.
inline bool broadcasts_to(const TensorFacts* facts, const TensorFacts* wanted) {
  if (facts == nullptr || wanted == nullptr || !facts->sizes || !wanted->sizes ||
      facts->sizes->size() > wanted->sizes->size()) {
    return false;
  }
  return std::equal(
      facts->sizes->rbegin(), facts->sizes->rend(), wanted->sizes->rbegin(),
      [](const Dim& from, const Dim& to) { return from == Dim::known(1) || (from == to && !from.is_unknown()); });
}

// Whether sizes are known and strides are what a new tensor of these sizes and this format gets.
inline bool has_layout(const TensorFacts* facts, c10::MemoryFormat format) {
  if (facts == nullptr || !facts->sizes || !facts->strides) {
    return false;
  }
  const auto& sizes = *facts->sizes;
  const auto& strides = *facts->strides;
  // From the dimension whose elements lie side by side on.
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
    if (expected == 0) {  // the formats differ in what they do about empty tensors
      if (format != c10::MemoryFormat::Contiguous) {
        return false;
      }
      expected = std::max<int64_t>(strides[i].value(), 1);
    }
  }
  return true;
}

// Whether the graph changes sizes in place or walks autograd's graph: then of two results with equal elements one cannot
// stand for the other.
inline bool distinguishes_equal_tensors(const Graph& graph) {
  bool may_differentiate = false;
  for_each_node(graph.body(), [&](Node* node) { may_differentiate = may_differentiate || node->op().differentiates; });
  return may_differentiate || may_change_sizes(graph);
}

inline bool is_contiguous(const TensorFacts* facts) { return has_layout(facts, c10::MemoryFormat::Contiguous); }

}  // namespace sconce
