// JointTrace: one kind of calls of a method that record gradients, with their backward.
#pragma once

#include "executor/joint/joint_plans.h"
#include "executor/joint/trial.h"
#include "executor/plan_table.h"
#include "trace/bound_tensors.h"
#include "trace/call_arguments.h"
#include "trace/module_state.h"

#include <sconce/options.h>

#include <ATen/core/stack.h>
#include <c10/util/FunctionRef.h>

#include <atomic>
#include <memory>
#include <optional>
#include <string>
#include <vector>

namespace sconce {

class Tracer;

// Returns whether the program sees gradients of the tensor.
bool sees_gradients(const at::Tensor& tensor);

class JointTrace final : public PlanEntry {
 public:
  // Runs the method on top of the stack, which has the module and the arguments, and leaves the results.
  using RunMethod = c10::function_ref<void(torch::jit::Stack&)>;

  // Runs a call with its backward on copies of the arguments, which have no history, and records both. What the call writes
  // and draws is undone. Returns the trace; with a refusal if it cannot be replayed. `pattern`: of the arguments' sizes.
  // `may_write`: the method may write attributes or arguments.
  static std::shared_ptr<JointTrace> rehearse(const c10::intrusive_ptr<c10::ivalue::Object>& module,
                                              const CallArguments& arguments, const SizePattern& pattern, bool may_write,
                                              RunMethod run_method, const std::string& name, const Options& options);
  // Returns a trace for calls that have no recording.
  static std::shared_ptr<JointTrace> refused(const c10::intrusive_ptr<c10::ivalue::Object>& module,
                                             const CallArguments& arguments, std::string reason);

  // Returns whether the trace is of such a call. Requires that the tensors among the arguments have the structure of those
  // that were recorded, and sizes of the pattern.
  bool holds(const CallArguments& arguments) const;
  bool is_ready() const override { return plans_ != nullptr && plans_->is_ready() && !reads_others(); }
  void wait_for_compile() const override;
  void explain(std::vector<Explanation>& plans) const;
  // Whether the plans are faster than those that the method has without the recording.
  Trial& trial() { return trial_; }
  // Requires `is_ready`, and that `holds` was true for this call. `symbols`: of the pattern. Returns nothing, and changes
  // nothing, if the call reads other numbers from tensors than the one that was recorded.
  std::optional<c10::IValue> run(const CallArguments& arguments, const std::vector<int64_t>& symbols) const;

 private:
  // Where a tensor of the result comes from: it is an argument itself, or forward returns it.
  struct Returned {
    bool is_argument;
    size_t number;
  };

  JointTrace(const c10::intrusive_ptr<c10::ivalue::Object>& module, const CallArguments& arguments, bool is_tried)
      : state_(module), structure_(arguments.values), trial_(is_tried) {}
  // Runs the call and its backward on a tracer. Returns null, with a refusal in the tracer, if it cannot be replayed.
  std::shared_ptr<JointPlans> run_recorded(torch::jit::Stack call, RunMethod run_method, Tracer& tracer);
  // Returns whether calls have read other numbers so often that running them by the plan costs more than it gains.
  bool reads_others() const { return misses_ > kMaxMisses && misses_ > runs / 2; }
  // Adds the results to the tracer's graph, and their gradients.
  std::shared_ptr<JointPlans> record_backward(Tracer& tracer, const std::vector<at::Tensor>& arguments);
  void compile(Tracer& tracer, const CallArguments& arguments, std::shared_ptr<JointPlans> plans, const Options& options);

  static constexpr uint64_t kMaxMisses = 3;
  mutable std::atomic<uint64_t> misses_{0};  // runs that were given up
  const ModuleState state_;
  const ArgumentStructure structure_;
  const Node* last_of_forward_ = nullptr;  // of the tracer's graph, while there is one
  c10::IValue result_;              // with tensors of the trace, until it has ended; then with others, which mean nothing
  std::vector<Returned> returned_;  // per tensor of the result
  BoundTensors captured_;
  std::shared_ptr<JointPlans> plans_;
  Trial trial_;
};

}  // namespace sconce
