#include "tools/gpu_check/results.h"

#include <cstdint>
#include <filesystem>
#include <fstream>
#include <iomanip>
#include <iterator>
#include <sstream>
#include <stdexcept>

namespace sconce::gpu_check {

using nlohmann::json;

namespace {

// Skipped parts run again: that costs little, and the reason may be gone.
bool is_final(const json& result) {
  const std::string status = result.value("status", "");
  return status == "passed" || status == "failed";
}

}  // namespace

void Results::resume(const std::string& earlier_path) {
  std::ifstream file(earlier_path);
  const json earlier = json::parse(file, nullptr, /*allow_exceptions=*/false);
  if (!earlier.is_object() || !earlier.contains("parts") || !earlier["parts"].is_object()) {
    throw std::runtime_error(earlier_path + ": not a file of results");
  }
  for (const auto& [part, result] : earlier["parts"].items()) {
    if (result.is_object() && is_final(result)) {
      content_["parts"][part] = result;
    }
  }
}

bool Results::finished(const std::string& part, const std::string& build) const {
  const auto found = parts().find(part);
  return found != parts().end() && found->value("build", "") == build && is_final(*found);
}

void Results::set_machine(json facts) {
  content_["machine"] = std::move(facts);
  write();
}

void Results::set(const std::string& part, const std::string& build, json result) {
  result["build"] = build;
  content_["parts"][part] = std::move(result);
  write();
}

size_t Results::count(const std::string& status) const {
  size_t count = 0;
  for (const auto& [part, result] : parts().items()) {
    count += result.value("status", "") == status ? 1 : 0;
  }
  return count;
}

// Writes a new file and renames it, so that a program that is killed leaves the previous state.
void Results::write() const {
  const std::string temporary = path_ + ".new";
  {
    std::ofstream file(temporary);
    // Output of test programs may contain anything; bytes that are not UTF-8 are replaced.
    file << content_.dump(1, ' ', false, json::error_handler_t::replace) << "\n";
    if (!file.flush()) {
      throw std::runtime_error(temporary + ": cannot be written");
    }
  }
  std::filesystem::rename(temporary, path_);
}

std::string fingerprint(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  if (!file) {
    return {};
  }
  uint64_t hash = 0xcbf29ce484222325;  // FNV-1a
  for (std::istreambuf_iterator<char> byte(file), end; byte != end; ++byte) {
    hash = (hash ^ static_cast<unsigned char>(*byte)) * 0x100000001b3;
  }
  std::ostringstream text;
  text << std::hex << std::setw(16) << std::setfill('0') << hash;
  return text.str();
}

}  // namespace sconce::gpu_check
