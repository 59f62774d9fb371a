// Passes that go wrong in each way that is caught.
#include <sconce/pass.h>
#include <sconce/pass_plugin.h>

#include <stdexcept>

SCONCE_PASS_PLUGIN("broken_pass", [](sconce::PassPipeline& passes) {
  passes.after(sconce::Stage::kOptimize, "throws", [](sconce::Graph&) -> bool { throw std::runtime_error("no such luck"); });
  passes.after(sconce::Stage::kOptimize, "breaks", [](sconce::Graph& graph) {
    for (sconce::Node* node : graph.body().nodes()) {
      node->set_op(sconce::unresolved_op());
    }
    return true;
  });
  passes.before(sconce::Stage::kRequired, "lies", [](sconce::Graph&) { return true; });
})
