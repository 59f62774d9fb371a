#include "cuda/kept_code.h"

#include <utility>

namespace sconce::cuda {
namespace {

// Counts up when Nvrtc::compile compiles in another way: other standard options.
constexpr int kFormat = 1;

}  // namespace

Expected<std::string> compile_or_find(const Nvrtc& nvrtc, const FileCache& cache, const std::string& text,
                                      const std::string& architecture, const std::vector<std::string>& options) {
  std::string key = "CUDA " + architecture + "\nNVRTC " + nvrtc.version() + "\nsconce " + std::to_string(kFormat);
  for (const std::string& option : options) {
    key += "\n" + option;
  }
  key += "\n" + text;
  if (auto kept = cache.find(key)) {
    return std::move(*kept);
  }
  auto cubin = nvrtc.compile(text, architecture, options);
  if (!cubin) {
    return cubin.refusal();
  }
  cache.keep(key, cubin->bytes);
  return std::move(cubin->bytes);
}

}  // namespace sconce::cuda
