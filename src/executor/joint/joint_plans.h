// JointPlans: forward and backward of a recorded call, ready to run.
#pragma once

#include "executor/traced_graph.h"
#include "ir/graph.h"

#include <cstddef>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

namespace sconce {

// Shared by the autograd nodes of all calls of a recording. `tensors` are those that forward takes after the symbols;
// `results` those that the call returns, after which forward returns the numbers that it reads, and what it keeps for
// backward.
struct JointPlans {
  // Tensors that the same results depend on, by their numbers among differentiable ones.
  struct Group {
    std::vector<size_t> results;
    std::vector<size_t> tensors;
  };

  std::string name;  // of the autograd nodes
  std::shared_ptr<TracedGraph> forward;
  std::shared_ptr<TracedGraph> backward;  // null if no result brings a gradient, or if backward raises
  // The message that backward of every result raises, because a backward within the call freed the saved tensors. Empty if
  // backward can run.
  std::string why_no_backward;
  size_t results = 0;
  std::vector<c10::IValue> reads;  // numbers that the call reads from tensors; forward returns them after the results
  std::vector<size_t> differentiable_tensors;  // those that backward has gradients of
  std::vector<size_t> differentiable_results;  // those that bring gradients
  std::vector<std::vector<size_t>> below;      // per differentiable result: the others that it is computed from
  std::vector<size_t> from_lowest;             // differentiable results; each comes after those below it
  std::vector<size_t> cut;                     // the differentiable results that others are computed from
  std::vector<size_t> saved_tensors;
  std::vector<size_t> saved_results;
  std::vector<std::vector<bool>> reaches;  // per differentiable result, per differentiable tensor
  std::vector<Group> groups;               // of all differentiable tensors
  std::vector<std::vector<bool>> needs;    // RecordingParts
  std::vector<std::vector<bool>> shares;   // RecordingParts
  std::vector<size_t> written;             // tensors that forward writes
  std::vector<size_t> marked;              // tensors that the call has require a gradient
  bool runs_backward = false;              // the call itself runs a backward, which calls hooks
  bool draws = false;                      // random numbers
  // Forward as recorded, for backward of backward. Readers of a result of `cut` read an input. These inputs come after the
  // tensors.
  std::shared_ptr<const Graph> operators;

  bool is_ready() const { return forward->is_ready() && (backward == nullptr || backward->is_ready()); }
  // Returns the plan of `operators`, which runs with autograd. Any thread may call.
  const Plan& with_autograd() const;

 private:
  mutable std::once_flag is_lowered_;
  mutable std::unique_ptr<Plan> plan_with_autograd_;
};

}  // namespace sconce
