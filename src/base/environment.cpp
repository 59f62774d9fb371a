#include "base/environment.h"

#include <cstdlib>
#include <string_view>

namespace sconce {

namespace {

bool is_set(const char* name) {
  const char* value = std::getenv(name);
  return value != nullptr && std::string_view(value) != "0" && std::string_view(value) != "";
}

std::string kernel_cache() {
  if (const char* directory = std::getenv("SCONCE_KERNEL_CACHE")) {
    return std::string_view(directory) == "off" ? "" : directory;
  }
  if (const char* caches = std::getenv("XDG_CACHE_HOME"); caches != nullptr && *caches == '/') {
    return std::string(caches) + "/sconce/kernels";
  }
  const char* home = std::getenv("HOME");
  return home != nullptr && *home == '/' ? std::string(home) + "/.cache/sconce/kernels" : "";
}

}  // namespace

const Environment& environment() {
  static const Environment& values = []() -> const Environment& {
    Environment& read = *new Environment;  // jobs may outlive static objects
    read.verify = is_set("SCONCE_VERIFY");
    read.check_shells = is_set("SCONCE_CHECK_SHELLS");
    if (const char* dump = std::getenv("SCONCE_DUMP")) {
      read.dump = dump;
    }
    read.kernel_cache = kernel_cache();
    if (is_set("SCONCE_ACCELERATE")) {
      read.accelerate = std::getenv("SCONCE_ACCELERATE");
    }
    if (const char* nvrtc = std::getenv("SCONCE_NVRTC")) {
      read.nvrtc = nvrtc;
    }
    return read;
  }();
  return values;
}

}  // namespace sconce
