// Operators that reduce dimensions of a tensor: reductions, softmax, norms.
#pragma once

#include "fusion/program/iteration.h"
#include "fusion/program/rule_arguments.h"
#include "ir/graph.h"

#include <optional>
#include <vector>

namespace sconce {

// How an operator reduces its first operand.
struct Reduction {
  enum class Result : uint8_t {
    kWhole,    // has the operand's sizes
    kKept,     // the reduced dimensions have size 1
    kDropped,  // the reduced dimensions are gone
  };
  DimSet dims;  // that are reduced
  Result result;
  // LibTorch computes it by operators on the operand. If the operand is contiguous, the result has the operand's strides,
  // those of dimensions of one element, too.
  bool is_composed = false;
  // The sizes that the reduced dimensions must have, if the operator says them. The operator rejects others.
  std::optional<std::vector<int64_t>> sizes = std::nullopt;
};

// Returns whether the operator reduces dimensions, with certain arguments.
bool may_reduce(const Op& op);
// Returns how the node reduces an operand of `rank` dimensions; nothing if its arguments are not constants, or if it
// computes a result of the operand's sizes and reduces others than the last dimensions.
std::optional<Reduction> reduction_of(const Node& node, int64_t rank);
// Returns whether one kernel may compute both where one is computed of the other, or some node of both. Reductions of the
// last dimensions may be; others must reduce the same ones.
bool may_share_kernel(const Node& reduction, const Node& other);

// Writes the operator, as write_operator does.
std::optional<Element> write_reduction(RuleArguments& args, const Op& op);

}  // namespace sconce
