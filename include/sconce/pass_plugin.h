// A library of passes that `--pass-plugin` and PassPipeline::load_plugin open:
//
//   #include <sconce/pass.h>
//   #include <sconce/pass_plugin.h>
//
//   SCONCE_PASS_PLUGIN("my_passes", [](sconce::PassPipeline& passes) {
//     passes.after(sconce::Stage::kOptimize, "my_pass", my_pass, "what it does");
//   })
//
// It shares C++ types with sconce, so it must be built with the same sconce, LibTorch and compiler: what it says of itself
// is compared before anything of it is called.
#pragma once

#include <sconce/headers_hash.h>
#include <sconce/pass_pipeline.h>
#include <sconce/version.h>

#include <torch/headeronly/version.h>

#define SCONCE_PASS_PLUGIN_STRING_(x) #x
#define SCONCE_PASS_PLUGIN_STRING(x) SCONCE_PASS_PLUGIN_STRING_(x)
// What has to agree.
#define SCONCE_PASS_PLUGIN_ABI                                                                                     \
  "sconce " SCONCE_VERSION " (headers " SCONCE_HEADERS_HASH "), LibTorch " TORCH_VERSION ", compiler " __VERSION__ \
  ", C++ " SCONCE_PASS_PLUGIN_STRING(__cplusplus) ", C++11 ABI " SCONCE_PASS_PLUGIN_STRING(_GLIBCXX_USE_CXX11_ABI)

namespace sconce {

// Its layout stays as it is: it is read before the versions are known to agree.
struct PassPlugin {
  const char* abi;   // SCONCE_PASS_PLUGIN_ABI where the library was compiled
  const char* name;  // for messages
  void (*add_passes)(PassPipeline& passes);
};

}  // namespace sconce

#define SCONCE_PASS_PLUGIN(name, add)                                                                \
  extern "C" __attribute__((visibility("default"))) const sconce::PassPlugin* sconce_pass_plugin() { \
    static const sconce::PassPlugin plugin = {SCONCE_PASS_PLUGIN_ABI, name, add};                    \
    return &plugin;                                                                                  \
  }
