#include "tools/sconce/report/page_facts.h"

#include <ATen/Version.h>

#include <array>
#include <chrono>
#include <ctime>
#include <fstream>
#include <thread>

namespace sconce::cli {
namespace {

std::string processor_name() {
  std::ifstream info("/proc/cpuinfo");
  for (std::string line; std::getline(info, line);) {
    if (line.starts_with("model name") && line.find(": ") != std::string::npos) {
      return line.substr(line.find(": ") + 2);
    }
  }
  return "unknown";
}

}  // namespace

PageFacts facts_of_this_machine(const std::string& versions) {
  const std::time_t now = std::chrono::system_clock::to_time_t(std::chrono::system_clock::now());
  std::tm utc{};
  gmtime_r(&now, &utc);
  std::array<char, 32> date{};
  std::strftime(date.data(), date.size(), "%Y-%m-%d %H:%M UTC", &utc);
  return {{"versions", versions},
          {"date", date.data()},
          {"processor", processor_name() + ", " + std::to_string(std::thread::hardware_concurrency()) + " threads"},
          {"LibTorch's kernels", at::get_cpu_capability()}};
}

}  // namespace sconce::cli
