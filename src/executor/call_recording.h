// CallRecording: what the recordings of calls of a module have in common.
#pragma once

#include "executor/recording_cache.h"
#include "trace/bound_tensors.h"
#include "trace/call_arguments.h"
#include "trace/module_state.h"
#include "trace/sizes/symbolic_sizes.h"
#include "trace/tracer.h"

#include <ATen/core/ivalue.h>
#include <c10/util/FunctionRef.h>

#include <atomic>
#include <cstdint>
#include <memory>
#include <vector>

namespace sconce {

// An owner says what is run and what comes back:
//
//   1. its constructor    the key that the recording holds for, and symbolic sizes if the pattern has symbols
//   2. `begin`            a tracer gets tensors that stand for the arguments
//   3. the owner          runs the call in the tracer's scope, adds what it returns and the numbers that it reads
//   4. `check_call`       refuses what later calls cannot repeat
//   5. the owner          compiles what the tracer has recorded
//
// In a later call, the owner asks `has_structure_of` and runs the plan: by `run_undoably` if the call reads numbers, which
// may differ from the recorded ones.
class CallRecording : public Recording {
 public:
  // Returns whether runs read different numbers so often that the recording costs more than it gains.
  bool reads_others() const { return misses() > kMaxMisses && misses() > runs / 2; }
  const c10::ivalue::Object* module() const { return state_.module(); }

 protected:
  using ModulePtr = c10::intrusive_ptr<c10::ivalue::Object>;

  // `pattern`: of the arguments' sizes.
  CallRecording(const ModulePtr& module, const CallArguments& arguments, const SizePattern& pattern);

  // Returns whether the module is the recorded one, and attributes, containers, numbers and strings are as recorded.
  bool has_structure_of(const c10::ivalue::Object& module, const CallArguments& arguments) const {
    return state_.is_of(module) && state_.holds() && structure_.holds(arguments.values) && aliased_forms_.hold(aliased_, {});
  }
  // Returns the arguments with tensors that stand for theirs. The tracer has `sizes`.
  std::vector<c10::IValue> begin(Tracer& tracer, const CallArguments& arguments) const {
    return add_arguments(tracer, arguments, pattern, sizes_);
  }
  // Refuses a call that has changed attributes, or has read what is the recorded call's alone. `owned`: tensors that the
  // plan may read as they are in each call, besides the module's.
  void check_call(Tracer& tracer, const ModulePtr& module, const CallArguments& arguments,
                  const std::vector<at::Tensor>& owned = {});
  // The side effects of a run.
  struct Effects {
    std::vector<at::Tensor> written;  // tensors that the plan may write
    std::vector<at::Tensor> marked;   // tensors that require a gradient since the run
    bool draws = false;               // random numbers
  };
  // Runs a plan that reads numbers. `run` returns whether they are the recorded ones. If not, or if it raises, nothing of
  // the run is to be seen: the owner runs the operators, which raise the same if they read the recorded numbers.
  bool run_undoably(const Effects& effects, c10::function_ref<bool()> run) const;
  // Returns how many runs have read other numbers than the recorded call.
  virtual uint64_t misses() const { return misses_; }

  const std::shared_ptr<SymbolicSizes>& sizes() const { return sizes_; }

 private:
  static constexpr uint64_t kMaxMisses = 3;

  ModuleState state_;
  const ArgumentStructure structure_;
  // Tensors of the module that the call reads or writes through aliases that no operator has made (`weight.data`). The
  // recording has captured the aliases, and keeps their memory: it does not hold once the tensors have other memory.
  std::vector<at::Tensor> aliased_;
  BoundTensors aliased_forms_{{}, {}};
  const std::shared_ptr<SymbolicSizes> sizes_;  // null if all calls have the recorded sizes
  mutable std::atomic<uint64_t> misses_{0};
};

}  // namespace sconce
