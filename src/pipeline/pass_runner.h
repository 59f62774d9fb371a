// Runs passes one after the other: times, dumps and checks them.
#pragma once

#include "pipeline/pass_list.h"

#include <sconce/explanation.h>
#include <sconce/pass_pipeline.h>

#include <memory>
#include <string>
#include <string_view>
#include <vector>

namespace sconce {

class PassRunner {
 public:
  enum class Verify { kNever, kAfterChange };
  // The default verifies in debug builds and where SCONCE_VERIFY asks for it.
  PassRunner();
  explicit PassRunner(Verify verify) : verify_(verify) {}
  // With passes of the user's, and without those that are disabled. The pipeline outlives the runner.
  explicit PassRunner(const PassPipeline& pipeline) : PassRunner() { pipeline_ = &pipeline; }
  PassRunner(Verify verify, const PassPipeline& pipeline) : verify_(verify), pipeline_(&pipeline) {}

  // Runs the pass and returns whether it says that the graph changed. In debug builds, and when verifying, checks that
  // claim against the graph's text. A broken graph or claim is an internal error that names the pass.
  bool run(std::string_view name, const PassCallback& pass, Graph& graph);
  bool run(const PassInfo& pass, Graph& graph) { return run(pass.name, pass.function, graph); }

  // The user's passes at this point, each on a copy of the graph that takes its place if nothing is wrong with it. One that
  // fails is a refusal, and its reproducer is written. Returns whether the graph has changed.
  bool run_custom(Stage stage, bool after, std::unique_ptr<Graph>& graph);
  bool run_custom(const CustomPass& pass, std::unique_ptr<Graph>& graph);

  const std::vector<PassTiming>& timings() const { return timings_; }
  const std::vector<RefusalExplanation>& refusals() const { return refusals_; }

 private:
  Verify verify_;
  bool run_on_copy(const CustomPass& pass, std::unique_ptr<Graph>& graph, std::string& problem);

  const PassPipeline* pipeline_ = nullptr;
  std::vector<PassTiming> timings_;
  std::vector<RefusalExplanation> refusals_;
};

}  // namespace sconce
