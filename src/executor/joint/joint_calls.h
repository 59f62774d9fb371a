// JointCalls: the recorded calls of one method that record gradients.
#pragma once

#include "executor/joint/joint_trace.h"

#include <sconce/explanation.h>

#include <atomic>
#include <cstdint>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

namespace sconce {

// A call that records gradients is one node of LibTorch's autograd if its kind came before: forward and backward were
// recorded together then, below autograd, so that no operator is left to autograd. Thread-safe.
class JointCalls {
 public:
  // `graph`: of the method; outlives this.
  JointCalls(const Graph& graph, JointMethod method, const Options& options);

  // Whether a plan for calls that record gradients leaves operators to autograd. Before one does, no call is recorded.
  bool is_on() const { return is_on_.load(std::memory_order_relaxed); }
  // Without an explanation, all operators are left to autograd.
  void note_plan(const std::optional<GradientExplanation>& gradients);

  // Runs a call that records gradients, if a plan serves it or it is to be recorded. The stack has the module and the
  // arguments (`inputs` in all), which the result replaces. Returns false, and changes nothing, for other calls.
  bool run(torch::jit::Stack& stack, size_t inputs, JointTrace::RunMethod run_method);

  Explanation::Recorded explain() const;
  void wait_for_compiles() const { table_.wait_for_compiles(); }
  void clear() { table_.clear(); }

 private:
  // Runs a call for which there is a trace, if it has a plan that is to run.
  bool run_by_plan(JointTrace& trace, const std::vector<int64_t>& symbols, const CallArguments& arguments,
                   torch::jit::Stack& stack, JointTrace::RunMethod run_method);
  // Runs the method, then records a call like it. Returns null if that is to be tried again with a later call.
  std::shared_ptr<JointTrace> run_and_record(const c10::intrusive_ptr<c10::ivalue::Object>& module,
                                             const CallArguments& arguments, const SizePattern& pattern,
                                             torch::jit::Stack& stack, JointTrace::RunMethod run_method);
  bool may_write();

  const Graph& graph_;
  const JointMethod method_;
  std::atomic<bool> is_on_{false};
  std::atomic<bool> is_recording_{false};
  std::atomic<bool> is_given_up_{false};
  std::atomic<uint32_t> calls_in_vain_{0};  // that found a refusal
  const Options options_;
  const bool is_recordable_;
  std::once_flag is_analyzed_;
  bool may_write_ = false;  // attributes or arguments; after the analysis
  PlanTable table_;
};

}  // namespace sconce
