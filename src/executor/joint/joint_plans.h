// JointPlans: forward and backward of a recorded call, or of a part of it, ready to run.
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
#include <utility>
#include <vector>

namespace sconce {

class DoubleBackward;

// The operators of a graph, run with autograd. Thread-safe.
class OperatorGraph {
 public:
  // `name`: of the call that the graph is of.
  OperatorGraph(std::shared_ptr<const Graph> graph, std::string name) : graph_(std::move(graph)), name_(std::move(name)) {}
  // The stack has the graph's inputs on top, which the outputs replace. Where a trace leaves sizes open, the symbols may be
  // c10::SymInt.
  void run(torch::jit::Stack& stack) const;
  const std::shared_ptr<const Graph>& graph() const { return graph_; }

 private:
  const std::shared_ptr<const Graph> graph_;
  const std::string name_;
  mutable std::once_flag is_lowered_;
  mutable std::unique_ptr<Plan> plan_;
  mutable std::once_flag is_lowered_open_;
  mutable std::unique_ptr<Plan> plan_with_open_sizes_;
};

// Shared by the autograd nodes of all calls of a recording. `tensors` are those that forward takes after the symbols;
// `results` those that the call returns, after which forward returns the numbers that it reads, and what it keeps for
// backward.
struct JointPlans {
  JointPlans();
  ~JointPlans();
  JointPlans(const JointPlans&) = delete;
  JointPlans& operator=(const JointPlans&) = delete;

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
  std::vector<size_t> saved_tensors;
  std::vector<size_t> saved_results;
  std::vector<std::vector<bool>> reaches;    // per differentiable result, per differentiable tensor
  std::vector<std::vector<bool>> needs;      // RecordingParts
  std::vector<std::vector<bool>> shares;     // RecordingParts
  bool frees_tensors = false;                // backward frees what it runs through
  std::vector<bool> read;                    // tensors that an operator reads
  std::vector<size_t> written;               // tensors that forward writes
  std::vector<size_t> marked;                // tensors that the call has require a gradient
  bool runs_backward = false;                // the call itself runs a backward, which calls hooks
  bool draws = false;                        // random numbers
  std::unique_ptr<OperatorGraph> operators;  // forward as recorded, for backward of backward
  SizePattern pattern;                       // of the sizes of the first tensors, which are the arguments
  size_t arguments = 0;                      // how many those are
  // Backward of backward. Null if a rerun needs the generator's state.
  std::unique_ptr<DoubleBackward> double_backward;

  bool is_ready() const { return forward->is_ready() && (backward == nullptr || backward->is_ready()); }
};

// Returns the symbols of a call with these arguments; c10::SymInt where those of a trace leave sizes open.
torch::jit::Stack symbols_of(const SizePattern& pattern, std::span<const at::Tensor> arguments);

}  // namespace sconce
