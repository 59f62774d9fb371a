// What facts say of sizes and strides. False wherever they are silent.
#pragma once

#include "ir/facts.h"

#include <algorithm>

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

// Whether sizes are known and strides are what a new tensor of these sizes gets.
inline bool is_contiguous(const TensorFacts* facts) {
  if (facts == nullptr || !facts->sizes || !facts->strides) {
    return false;
  }
  int64_t expected = 1;
  for (size_t i = facts->sizes->size(); i-- > 0;) {
    if (!(*facts->sizes)[i].is_known() || (*facts->strides)[i] != Dim::known(expected)) {
      return false;
    }
    expected *= std::max<int64_t>((*facts->sizes)[i].value(), 1);
  }
  return true;
}

}  // namespace sconce
