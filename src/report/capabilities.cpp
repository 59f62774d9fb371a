#include <sconce/status.h>
#include <sconce/version.h>

#include "base/libtorch_version.h"
#include "base/processor_name.h"
#include "base/usable_cores.h"
#include "fusion/cpu/cpu_kernels.h"
#include "fusion/program/kernel_width.h"
#include "plan/device/device.h"
#include "report/json.h"

#include <ATen/Version.h>

#include <thread>

namespace sconce {
namespace {

#if defined(__clang__)
constexpr const char* kCompiler = __VERSION__;
#else
constexpr const char* kCompiler = "GCC " __VERSION__;
#endif

std::string why_no_compiled_kernels() {
  if (std::string reason = why_no_kernels(); !reason.empty()) {
    return reason;
  }
  const auto compiler = cpu_kernel_compiler();
  return compiler ? "" : compiler.refusal().reason;
}

std::string why_no_cuda() {
  const auto runtime = find_device_runtime(c10::kCUDA);
  return !runtime ? runtime.refusal().reason : (*runtime)->device_count() == 0 ? (*runtime)->why_unavailable() : "";
}

std::string available_or(const std::string& why_not) { return why_not.empty() ? "available" : "unavailable: " + why_not; }

}  // namespace

Capabilities capabilities() {
  return {.sconce = SCONCE_VERSION,
          .libtorch = libtorch_version(),
          .compiler = kCompiler,
          .processor = processor_name(),
          .vectors = at::get_cpu_capability(),
          .hardware_threads = std::thread::hardware_concurrency(),
          .usable_cores = usable_cores(),
          .why_no_kernels = why_no_compiled_kernels(),
          .why_no_cuda = why_no_cuda()};
}

std::string to_text(const Capabilities& capabilities) {
  return "sconce " + capabilities.sconce + ", LibTorch " + capabilities.libtorch + ", " + capabilities.compiler +
         "\nprocessor: " + capabilities.processor + ", " + std::to_string(capabilities.usable_cores) + " of " +
         std::to_string(capabilities.hardware_threads) + " threads for this process, " + capabilities.vectors +
         "\nkernels: " + available_or(capabilities.why_no_kernels) + "\nCUDA: " + available_or(capabilities.why_no_cuda) +
         "\n";
}

std::string to_json(const Capabilities& capabilities) {
  const auto or_null = [](const std::string& why_not) { return why_not.empty() ? Json() : Json(why_not); };
  return json_text(Json{{"sconce", capabilities.sconce},
                        {"libtorch", capabilities.libtorch},
                        {"compiler", capabilities.compiler},
                        {"processor", capabilities.processor},
                        {"vectors", capabilities.vectors},
                        {"hardware_threads", capabilities.hardware_threads},
                        {"usable_cores", capabilities.usable_cores},
                        {"why_no_kernels", or_null(capabilities.why_no_kernels)},
                        {"why_no_cuda", or_null(capabilities.why_no_cuda)}});
}

}  // namespace sconce
