#include "tools/sconce/report/page_facts.h"

#include <array>
#include <chrono>
#include <ctime>

namespace sconce::cli {

MachineFacts facts_of_this_machine() {
  const std::time_t now = std::chrono::system_clock::to_time_t(std::chrono::system_clock::now());
  std::tm utc{};
  gmtime_r(&now, &utc);
  std::array<char, 32> date{};
  std::strftime(date.data(), date.size(), "%Y-%m-%d %H:%M UTC", &utc);
  return {capabilities(), date.data()};
}

PageFacts rows_of(const MachineFacts& facts) {
  const Capabilities& has = facts.capabilities;
  return {{"versions", "sconce " + has.sconce + ", LibTorch " + has.libtorch + ", " + has.compiler},
          {"date", facts.date},
          {"processor", has.processor + ", " + std::to_string(has.hardware_threads) + " threads, " +
                            std::to_string(has.usable_cores) + " for this process"},
          {"LibTorch's kernels", has.vectors}};
}

Json to_json(const MachineFacts& facts) {
  const Capabilities& has = facts.capabilities;
  return Json{{"sconce", has.sconce},
              {"libtorch", has.libtorch},
              {"compiler", has.compiler},
              {"date", facts.date},
              {"processor", has.processor},
              {"hardware_threads", has.hardware_threads},
              {"usable_cores", has.usable_cores},
              {"libtorch_kernels", has.vectors}};
}

}  // namespace sconce::cli
