// StepTrace: where the time of a model's calls goes, step by step.
//
//   sconce::StepTrace trace;
//   model.forward({x});
//   trace.write("calls.json");  // open it at https://ui.perfetto.dev or chrome://tracing
#pragma once

#include <c10/core/ScalarType.h>

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

namespace sconce {

// The least that one run of a step has to do, from the sizes of its tensors in the first recorded run of its plan.
struct StepWork {
  // Multiplications and additions of matrix products, convolutions, attention and recurrent layers, each as one; of another
  // operator one for each element of its largest tensor.
  double flops = 0;
  c10::ScalarType dtype = c10::ScalarType::Undefined;  // of the arithmetic; Undefined if there is none
  double bytes = 0;           // of the tensors that it reads and writes, each once; views read and write nothing
  double constant_bytes = 0;  // of these bytes, those of parameters, attributes and constants
};

// The time of one step of a plan, summed over its runs.
struct StepTiming {
  std::string plan;     // the method or function
  size_t position = 0;  // of the step in its plan
  std::string op;       // "aten::add"; of a step that is not one operator what it does: "move", "jump", "kernel add mul"
  std::string node;     // in the text form; may be empty
  std::string source;   // "model.py:12:8", may be empty
  uint64_t runs = 0;
  uint64_t prepared_runs = 0;    // those that used a prepared kernel
  double seconds = 0;            // without the runs of other plans inside the step
  std::optional<StepWork> work;  // nothing if sizes are not known before the step runs, or what its operator computes
};

// Records the steps of every run in the process, on all threads, from its construction until `stop`. A process has one at a
// time; a run reads a flag to find it. Which steps run, and how, does not change. Recording a step costs about as much as
// reading the clock twice, which is part of its run's time and of no step's time.
class StepTrace {
 public:
  static constexpr size_t kMaxSteps = 1'000'000;
  // Begins to record. `max_steps` limits the memory, by thread: later steps are counted as dropped. Throws c10::Error if the
  // process has an active StepTrace.
  explicit StepTrace(size_t max_steps = kMaxSteps);
  ~StepTrace();
  StepTrace(const StepTrace&) = delete;
  StepTrace& operator=(const StepTrace&) = delete;

  // Returns whether a thread has reached `max_steps`.
  bool is_full() const;

  // Ends recording, and waits for recorded runs. Must not be called inside a run. The functions below also call it.
  void stop();

  // Returns the steps that ran and their times, by plan, in the order of the plan.
  std::vector<StepTiming> timings();
  // Returns the recorded runs that no other run contains.
  uint64_t calls();
  // Returns the time of these runs.
  double seconds();
  uint64_t dropped_steps();

  // Returns the trace in the JSON format of Chrome and Perfetto: one slice per run of a plan, loop, iteration and step, each
  // inside the one that it is a part of.
  std::string json();
  // Writes `json` to a file. Throws c10::Error, with the path and the system's reason, if the file cannot be written.
  void write(const std::string& path);

 private:
  class Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace sconce
