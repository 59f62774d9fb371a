// record_part: forward and backward of a call, as a tracer has recorded them.
#pragma once

#include "base/expected.h"
#include "executor/recorded_calls/recorded_part.h"
#include "trace/tracer.h"

#include <sconce/options.h>

#include <ATen/core/Tensor.h>
#include <ATen/core/ivalue.h>

#include <cstddef>
#include <memory>
#include <span>
#include <string>
#include <vector>

namespace sconce {

// Forward and backward of a call, or of a part of one, in the graph of a tracer.
struct PartRecording {
  const Node* last_of_forward = nullptr;
  size_t results = 0;
  std::vector<c10::IValue> reads;              // numbers that the call has read, which are outputs after the results
  std::vector<size_t> differentiable_results;  // those that bring gradients
  std::vector<size_t> differentiable_tensors;  // those that backward has gradients of
  std::vector<c10::IValue> backward_reads;     // numbers that backward has read, which are outputs after the gradients
  std::string why_no_backward;                 // DifferentiableFunction
};

// Settings that all parts of a call share.
struct PartSettings {
  std::string name;  // of the autograd nodes
  size_t symbols = 0;
  SizePattern pattern;                   // of the sizes of the first tensors, which are the arguments
  size_t arguments = 0;                  // how many those are
  std::shared_ptr<SymbolicSizes> sizes;  // null if all calls have the recorded sizes
  const Options& options;
};

// Adds to the tracer's graph what the call returns: the results, the numbers that it has read, and the gradients of the
// tensors, which it records. Requires the tracer's scope. With a refusal in the tracer, the call cannot be replayed.
//
// `tensors`: of the trace; those that it has captured come last. If backward raises because a backward within the call has
// freed what it reads, the recording says so, and the caller's backward raises it.
PartRecording record_gradients(Tracer& tracer, const std::vector<at::Tensor>& results,
                               const std::vector<at::Tensor>& tensors);

// Makes the plans of a recording, whose tracer has no refusal. Refuses what later calls cannot repeat. `given`: the tensors,
// the call's arguments first.
Expected<std::shared_ptr<RecordedPart>> compile_recording(PartRecording recording, std::unique_ptr<Graph> recorded,
                                                          std::span<const at::Tensor> given, const PartSettings& call);

}  // namespace sconce
