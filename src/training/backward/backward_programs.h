// BackwardPrograms: the plans of backwards, by what they depend on. The implementation of sconce::BackwardCache.
#pragma once

#include "executor/compiled_trace.h"
#include "executor/recording_cache.h"
#include "training/backward/trace_backward.h"

#include <sconce/compiled_backward.h>

#include <functional>
#include <memory>
#include <string>

namespace sconce {

class BackwardPrograms {
 public:
  explicit BackwardPrograms(const Options& options) : options_(options), table_(options.plan_cache_capacity()) {}

  struct Backward {
    // Runs a backward as LibTorch's engine would, in its place. Returns the gradients that were asked for. Null: the engine
    // has to run it.
    std::function<torch::autograd::variable_list()> run;
    bool calls_other_code = true;  // which may ask the engine for the backward in which it finds itself
  };
  // Returns what runs the backward, by plan or recorded. `root`: a GraphRoot. The thread's state is that in which the task
  // was made.
  Backward take(const std::shared_ptr<torch::autograd::Node>& root, const torch::autograd::GraphTask& task,
                bool creates_graph);

  BackwardExplanation explain() const;
  void clear() { table_.clear(); }
  void wait_for_compiles() const { table_.wait_for_compiles(); }

 private:
  struct Recorded;

  std::shared_ptr<Recorded> record(BackwardSchedule& walk, const SizePattern& pattern, bool keeps_graph,
                                   torch::autograd::variable_list& results) const;
  // Returns a backward without `run`.
  Backward leave_to_engine(const std::string& reason);

  const Options options_;
  RecordingCache table_;
};

}  // namespace sconce
