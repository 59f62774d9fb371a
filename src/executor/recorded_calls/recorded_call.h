// RecordedCall: the recording of a call that requires gradients, with its backward.
#pragma once

#include "base/plan_race.h"
#include "executor/call_recording.h"
#include "executor/recorded_calls/record_part.h"
#include "executor/recorded_calls/result_parts.h"
#include "trace/bound_tensors.h"

#include <sconce/options.h>

#include <ATen/core/stack.h>
#include <c10/util/FunctionRef.h>

#include <atomic>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

namespace sconce {

class Tracer;

// Returns whether the program sees gradients of the tensor.
bool sees_gradients(const at::Tensor& tensor);

// A method of which calls are recorded.
struct RecordedMethod {
  std::string name;
  // No hook, history or leaf outside of a call takes part in gradients that it computes itself.
  bool gradients_end_at_arguments = false;
};

class RecordedCall final : public CallRecording {
 public:
  // Runs the method on top of the stack, which has the module and the arguments, and leaves the results.
  using RunMethod = c10::function_ref<void(torch::jit::Stack&)>;

  // Runs a call and its backward on copies of the arguments, which have no history, and records both. Undoes what the call
  // writes and draws. Sets `refusal` if the recording cannot be replayed. `pattern`: of the arguments' sizes. `may_write`:
  // whether the method may write attributes or arguments. `marked`: arguments that require a gradient since the call.
  static std::shared_ptr<RecordedCall> rehearse(const c10::intrusive_ptr<c10::ivalue::Object>& module,
                                                const CallArguments& arguments, const SizePattern& pattern, bool may_write,
                                                const std::vector<size_t>& marked, RunMethod run_method,
                                                const RecordedMethod& method, const Options& options);
  // Returns a recording that only says why there is none.
  static std::shared_ptr<RecordedCall> refused(const c10::intrusive_ptr<c10::ivalue::Object>& module,
                                               const CallArguments& arguments, std::string reason);

  // Returns whether the recording can run the call. Requires that the tensors among the arguments have the recorded
  // structure, and sizes of the pattern.
  bool holds(const c10::ivalue::Object& module, const CallArguments& arguments) const;
  // Returns whether hooks would see gradients that the call computes by a backward of its own.
  bool has_hooks_within(const CallArguments& arguments) const;
  bool is_ready() const override;
  void wait_for_compile() const override;
  void explain(std::vector<Explanation>& plans) const;
  // Races the recording against the method's other plans.
  PlanRace& race() { return race_; }
  // Requires `is_ready`, and that `holds` was true for this call. `symbols`: of the pattern. Returns nothing, and changes
  // nothing, if the call reads other numbers from tensors than the one that was recorded.
  std::optional<c10::IValue> run(const CallArguments& arguments, const std::vector<int64_t>& symbols) const;

 private:
  // One for each autograd node of a call. Most calls have one part.
  struct Part {
    std::shared_ptr<RecordedPart> plans;
    // The part's tensors, as indices into the call's: arguments, captured tensors, results of the parts before.
    std::vector<size_t> tensors;
  };
  // The result of a rehearsal.
  struct Rehearsal {
    PartRecording recording;            // of the whole call
    std::vector<ResultPart> parts;      // none if the call is one part
    std::vector<const Value*> results;  // of the tracer's graph
    std::vector<size_t> marked;         // RecordedPart
    bool runs_backward = false;         // RecordedPart
  };

  RecordedCall(const ModulePtr& module, const CallArguments& arguments, const SizePattern& of_sizes, bool is_tried)
      : CallRecording(module, arguments, of_sizes), race_(is_tried) {}
  // Runs the call and its backward on a tracer. Returns nothing, with a refusal in the tracer, if the call cannot be
  // replayed. `has_history`: an argument has one through which gradients that the call computes may flow.
  std::optional<Rehearsal> run_on_tracer(torch::jit::Stack call, bool has_history, RunMethod run_method, Tracer& tracer);
  // Notes where the tensors of the call's result come from, as if the call were one part. Returns those that operators have
  // computed. `arguments`: of the trace. `captured`: how many tensors it has captured.
  std::vector<at::Tensor> collect_results(const std::vector<at::Tensor>& arguments, size_t captured);
  // Makes the plans of a call that is one part. Sets `refusal` if the call cannot be replayed.
  void add_whole(Rehearsal& rehearsal, const CallArguments& arguments, Tracer& tracer, const PartSettings& call);
  // Makes the plans of a call whose results depend on each other, or on different tensors. Each part runs once more, by its
  // operators, and is recorded with its backward. Sets `refusal` if the call cannot be replayed.
  void add_parts(Rehearsal& rehearsal, const CallArguments& arguments, const PartSettings& call);
  // Adds a part. `numbers`: its tensors (Part::tensors). Sets `refusal` if later calls cannot repeat it.
  void add_part(const Rehearsal& rehearsal, PartRecording recording, std::unique_ptr<Graph> recorded,
                std::span<const at::Tensor> given, std::vector<size_t> numbers, const PartSettings& call);
  uint64_t misses() const override;
  // Runs the parts on the tensors of a call, and adds what they return. Returns false if one reads other numbers than when
  // it was recorded.
  bool run_parts(const std::vector<int64_t>& symbols, std::vector<at::Tensor>& tensors) const;
  // Returns what `run_parts` changes of these tensors.
  Effects effects_on(const std::vector<at::Tensor>& tensors) const;

  c10::IValue result_;            // a template of the result, with placeholders for its tensors
  std::vector<size_t> returned_;  // per tensor of the result: its number among the tensors of the call
  std::vector<at::Tensor> captured_;
  BoundTensors bound_;  // the same
  std::vector<Part> parts_;
  PlanRace race_;
};

}  // namespace sconce
