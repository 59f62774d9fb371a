// JointPlans: forward and backward of a recorded call, ready to run.
#pragma once

#include "executor/traced_graph.h"
#include "ir/graph.h"
#include "trace/sizes/size_pattern.h"

#include <ATen/core/Tensor.h>
#include <ATen/core/stack.h>

#include <cstddef>
#include <memory>
#include <mutex>
#include <span>
#include <string>
#include <vector>

namespace sconce {

class DoubleBackward;

// Shared by the autograd nodes of all calls of a recording. `tensors` are those that forward takes after the symbols;
// `results` those that the call returns, after which forward returns the numbers that it reads, and what it keeps for
// backward.
struct JointPlans {
  JointPlans();
  ~JointPlans();
  JointPlans(const JointPlans&) = delete;
  JointPlans& operator=(const JointPlans&) = delete;

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
  bool frees_tensors = false;              // backward frees what it runs through
  std::vector<bool> read;                  // tensors that an operator reads
  std::vector<size_t> written;             // tensors that forward writes
  std::vector<size_t> marked;              // tensors that the call has require a gradient
  bool runs_backward = false;              // the call itself runs a backward, which calls hooks
  bool draws = false;                      // random numbers
  // Forward as recorded, for backward of backward. Readers of a result of `cut` read an input. These inputs come after the
  // tensors.
  std::shared_ptr<const Graph> operators;
  SizePattern pattern;   // of the sizes of the first tensors, which are the arguments
  size_t arguments = 0;  // how many those are
  // Backward of backward. Null if a rerun needs more than the tensors: results of `cut`, or the generator's state.
  std::unique_ptr<DoubleBackward> double_backward;

  bool is_ready() const { return forward->is_ready() && (backward == nullptr || backward->is_ready()); }
  // Runs `operators` with autograd. The stack has its inputs on top, which the outputs replace. Any thread may call. Where a
  // trace leaves sizes open, the symbols may be c10::SymInt.
  void run_operators(torch::jit::Stack& stack) const;
  // Returns the symbols of a call with these tensors; c10::SymInt where those of a trace leave sizes open.
  torch::jit::Stack symbols_of(std::span<const at::Tensor> tensors) const;

 private:
  mutable std::once_flag is_lowered_;
  mutable std::unique_ptr<Plan> plan_;
  mutable std::once_flag is_lowered_open_;
  mutable std::unique_ptr<Plan> plan_with_open_sizes_;
};

}  // namespace sconce
