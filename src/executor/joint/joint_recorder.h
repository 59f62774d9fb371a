// joint_recorder: forward and backward of a call, as a tracer has recorded them.
#pragma once

#include "executor/joint/joint_plans.h"
#include "trace/tracer.h"

#include <sconce/options.h>

#include <ATen/core/Tensor.h>

#include <cstddef>
#include <memory>
#include <span>
#include <string>
#include <vector>

namespace sconce {

// Forward and backward of a call, or of a part of one, in the graph of a tracer.
struct JointRecording {
  std::shared_ptr<JointPlans> plans;      // which results and tensors have gradients, and what the call reads
  const Node* last_of_forward = nullptr;  // of the tracer's graph
};

// Adds to the tracer's graph what the call returns: the results, the numbers that it has read, and the gradients of the
// tensors, which it records. Requires the tracer's scope. With a refusal in the tracer, the call cannot be replayed.
//
// `tensors`: of the trace; those that it has captured come last. If backward raises because a backward within the call has
// freed what it reads, the plans say so, and the caller's backward raises it.
JointRecording record_gradients(Tracer& tracer, const std::vector<at::Tensor>& results,
                                const std::vector<at::Tensor>& tensors);

// Makes the plans of a recording, whose tracer has no refusal. Returns why later calls cannot repeat it; null if they can.
// `given`: the call's tensors, the arguments first. `guards`: null if all calls have the recorded sizes.
const char* compile_recording(JointRecording recording, std::unique_ptr<Graph> recorded, size_t symbols,
                              std::span<const at::Tensor> given, const SymbolicSizes* guards, const Options& options);

}  // namespace sconce
