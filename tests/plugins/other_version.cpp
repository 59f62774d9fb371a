// A library of passes that was built for another sconce.
#include <sconce/pass_pipeline.h>

namespace {
struct Plugin {
  const char* abi;
  const char* name;
  void (*add_passes)(sconce::PassPipeline& passes);
};
}  // namespace

extern "C" __attribute__((visibility("default"))) const void* sconce_pass_plugin();
const void* sconce_pass_plugin() {
  static const Plugin plugin = {"sconce 99.0, LibTorch 1.0, compiler 4", "other_version", nullptr};
  return &plugin;
}
