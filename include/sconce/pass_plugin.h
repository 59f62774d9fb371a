// A library of passes that `--pass-plugin` and PassPipeline::load_plugin open:
//
//   #include <sconce/pass.h>
//   #include <sconce/pass_plugin.h>
//
//   SCONCE_PASS_PLUGIN("my_passes", [](sconce::PassPipeline& passes) {
//     passes.after(sconce::Stage::kOptimize, "my_pass", my_pass, "what it does");
//   })
//
// The library shares C++ types with sconce, so it must be built with the same sconce, LibTorch and compiler. Its version
// string is compared with sconce's before any of its code is called (rule R14).
#pragma once

#include <sconce/headers_hash.h>
#include <sconce/pass_pipeline.h>
#include <sconce/version.h>

#include <torch/headeronly/version.h>

#define SCONCE_PASS_PLUGIN_STRING_(x) #x
#define SCONCE_PASS_PLUGIN_STRING(x) SCONCE_PASS_PLUGIN_STRING_(x)
// The version string: everything that must be equal in sconce and the library.
#define SCONCE_PASS_PLUGIN_ABI                                                                                     \
  "sconce " SCONCE_VERSION " (headers " SCONCE_HEADERS_HASH "), LibTorch " TORCH_VERSION ", compiler " __VERSION__ \
  ", C++ " SCONCE_PASS_PLUGIN_STRING(__cplusplus) ", C++11 ABI " SCONCE_PASS_PLUGIN_STRING(_GLIBCXX_USE_CXX11_ABI)

namespace sconce {

// The layout of this struct must never change: it is read before the versions are known to agree.
struct PassPlugin {
  const char* abi;   // SCONCE_PASS_PLUGIN_ABI as the library was compiled with it
  const char* name;  // for messages
  void (*add_passes)(PassPipeline& passes);
};

}  // namespace sconce

#define SCONCE_PASS_PLUGIN(name, add)                                                                \
  extern "C" __attribute__((visibility("default"))) const sconce::PassPlugin* sconce_pass_plugin() { \
    static const sconce::PassPlugin plugin = {SCONCE_PASS_PLUGIN_ABI, name, add};                    \
    return &plugin;                                                                                  \
  }
