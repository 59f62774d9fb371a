#include "tools/sconce/report/page_facts.h"

#include "base/processor_name.h"
#include "base/usable_cores.h"

#include <sconce/version.h>

#include <ATen/Version.h>
#include <torch/version.h>

#include <array>
#include <chrono>
#include <ctime>
#include <thread>

namespace sconce::cli {
namespace {

#if defined(__clang__)
constexpr const char* kCompiler = __VERSION__;
#else
constexpr const char* kCompiler = "GCC " __VERSION__;
#endif

}  // namespace

MachineFacts facts_of_this_machine() {
  const std::time_t now = std::chrono::system_clock::to_time_t(std::chrono::system_clock::now());
  std::tm utc{};
  gmtime_r(&now, &utc);
  std::array<char, 32> date{};
  std::strftime(date.data(), date.size(), "%Y-%m-%d %H:%M UTC", &utc);
  return {.sconce = SCONCE_VERSION,
          .libtorch = TORCH_VERSION,
          .compiler = kCompiler,
          .date = date.data(),
          .processor = processor_name(),
          .threads = std::thread::hardware_concurrency(),
          .usable_cores = usable_cores(),
          .kernels = at::get_cpu_capability()};
}

PageFacts rows_of(const MachineFacts& facts) {
  return {{"versions", "sconce " + facts.sconce + ", LibTorch " + facts.libtorch + ", " + facts.compiler},
          {"date", facts.date},
          {"processor", facts.processor + ", " + std::to_string(facts.threads) + " threads, " +
                            std::to_string(facts.usable_cores) + " for this process"},
          {"LibTorch's kernels", facts.kernels}};
}

Json to_json(const MachineFacts& facts) {
  return Json{{"sconce", facts.sconce},
              {"libtorch", facts.libtorch},
              {"compiler", facts.compiler},
              {"date", facts.date},
              {"processor", facts.processor},
              {"hardware_threads", facts.threads},
              {"usable_cores", facts.usable_cores},
              {"libtorch_kernels", facts.kernels}};
}

}  // namespace sconce::cli
