// Operators that fold the last dimensions of a tensor: reductions, softmax, norms.
#pragma once

#include "fusion/writing.h"
#include "ir/graph.h"

#include <optional>
#include <vector>

namespace sconce {

// How an operator folds its first operand.
struct Fold {
  enum class Result : uint8_t {
    kWhole,    // has the operand's sizes
    kKept,     // the folded dimensions have size 1
    kDropped,  // the folded dimensions are gone
  };
  int64_t dims;  // the number of dimensions that are folded: the last ones
  Result result;
  // LibTorch computes it by operators on the operand. If the operand is contiguous, the result has the operand's strides,
  // those of dimensions of one element, too.
  bool is_composed = false;
  // The sizes that the folded dimensions must have, if the operator says them. The operator rejects others.
  std::optional<std::vector<int64_t>> sizes = std::nullopt;
};

// Returns whether the operator folds dimensions, with certain arguments.
bool may_fold(const Op& op);
// Returns how the node folds an operand of `rank` dimensions; nothing if it folds others than the last, or if its arguments
// are not constants.
std::optional<Fold> fold_of(const Node& node, int64_t rank);

// Writes the operator, as write_operator does.
std::optional<Element> write_fold(Writing& writing, const Op& op);

}  // namespace sconce
