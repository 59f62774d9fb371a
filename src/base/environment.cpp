#include "base/environment.h"

#include <cstdlib>
#include <string_view>

namespace sconce {

const Environment& environment() {
  static const Environment values = [] {
    Environment read;
    const char* verify = std::getenv("SCONCE_VERIFY");
    read.verify = verify != nullptr && std::string_view(verify) != "0" && std::string_view(verify) != "";
    if (const char* dump = std::getenv("SCONCE_DUMP")) {
      read.dump = dump;
    }
    if (const char* nvrtc = std::getenv("SCONCE_NVRTC")) {
      read.nvrtc = nvrtc;
    }
    return read;
  }();
  return values;
}

}  // namespace sconce
