// A plug-in that adds a pass and fails.
#include <sconce/pass.h>
#include <sconce/pass_plugin.h>

SCONCE_PASS_PLUGIN("throwing", [](sconce::PassPipeline& passes) {
  passes.after(sconce::Stage::kOptimize, "nothing", [](sconce::Graph&) { return false; });
  throw 5;
})
