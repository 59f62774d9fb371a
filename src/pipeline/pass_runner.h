// PassRunner: runs passes, and times, dumps and checks them.
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
  // By default, verifies in debug builds and if SCONCE_VERIFY is set.
  PassRunner();
  explicit PassRunner(Verify verify) : verify_(verify) {}
  // Runs the user's passes too, and skips disabled ones. The pipeline must outlive the runner.
  explicit PassRunner(const PassPipeline& pipeline) : PassRunner() { pipeline_ = &pipeline; }
  PassRunner(Verify verify, const PassPipeline& pipeline) : verify_(verify), pipeline_(&pipeline) {}

  // Names what the next passes belong to, for `timings`.
  void begin_stage(std::string_view stage) { stage_ = stage; }

  // Runs the pass and returns its result: whether the graph changed. When verifying, compares this with the graph's text and
  // verifies the graph. Either failure is an internal error that names the pass.
  bool run(std::string_view name, const PassCallback& pass, Graph& graph);
  bool run(const PassInfo& pass, Graph& graph) { return run(pass.name, pass.function, graph); }
  // The same for a pass that another one runs as a part of itself, whether it is disabled or not.
  bool run_part(std::string_view name, const PassCallback& pass, Graph& graph);

  // Runs the user's passes at this point. Each works on a copy of the graph, which replaces the graph unless the pass
  // failed. A failed pass becomes a refusal, and a reproducer is written. Returns whether the graph changed.
  bool run_custom(Stage stage, bool after, std::unique_ptr<Graph>& graph);
  bool run_custom(Stage stage, bool after, std::shared_ptr<Graph>& graph);
  bool run_custom(const CustomPass& pass, std::unique_ptr<Graph>& graph);

  const std::vector<PassTiming>& timings() const { return timings_; }
  const std::vector<RefusalExplanation>& refusals() const { return refusals_; }

 private:
  Verify verify_;
  std::vector<const CustomPass*> custom_at(Stage stage, bool after) const;
  bool run_on_copy(const CustomPass& pass, std::unique_ptr<Graph>& graph, std::string& problem);

  const PassPipeline* pipeline_ = nullptr;
  std::string stage_;
  double seconds_of_parts_ = 0;  // of the pass that runs
  std::vector<PassTiming> timings_;
  std::vector<RefusalExplanation> refusals_;
};

}  // namespace sconce
