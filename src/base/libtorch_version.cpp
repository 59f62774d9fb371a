#include "base/libtorch_version.h"

#include <sconce/version.h>

#include <c10/util/Exception.h>
#include <caffe2/core/common.h>
#include <torch/version.h>

namespace sconce {

// at::show_config, which prints these settings, also asks CUDA's library, which may not be loaded.
const std::string& libtorch_version() {
  static const std::string version = [] {
    const auto& settings = caffe2::GetBuildOptions();
    const auto found = settings.find("TORCH_VERSION");
    return found == settings.end() ? "unknown" : found->second;
  }();
  return version;
}

void expect_libtorch_of_build() {
  static const bool is_same = libtorch_version() == TORCH_VERSION;
  TORCH_CHECK(is_same, "sconce " SCONCE_VERSION " was built for LibTorch " TORCH_VERSION ", and this process has LibTorch ",
              libtorch_version(), "; load the libraries of LibTorch " TORCH_VERSION ", or build sconce with the other one");
}

}  // namespace sconce
