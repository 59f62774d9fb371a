#include "base/libtorch_version.h"

#include <sconce/version.h>

#include <ATen/Version.h>
#include <c10/util/Exception.h>
#include <torch/version.h>

namespace sconce {

// LibTorch's libraries have no function that returns it. `at::show_config` lists it among the settings of the build.
const std::string& libtorch_version() {
  static const std::string version = [] {
    constexpr std::string_view kSetting = "TORCH_VERSION=";
    const std::string settings = at::show_config();
    const size_t begin = settings.find(kSetting);
    return begin == std::string::npos
               ? "unknown"
               : settings.substr(begin + kSetting.size(), settings.find(',', begin) - begin - kSetting.size());
  }();
  return version;
}

void expect_libtorch_of_build() {
  static const bool is_same = libtorch_version() == TORCH_VERSION;
  TORCH_CHECK(is_same, "sconce " SCONCE_VERSION " was built for LibTorch " TORCH_VERSION ", and this process has LibTorch ",
              libtorch_version(), "; load the libraries of LibTorch " TORCH_VERSION ", or build sconce with the other one");
}

}  // namespace sconce
