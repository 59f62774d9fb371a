// The results of all parts, in one JSON file that is complete at any moment.
//
//   {"machine": {…}, "parts": {"kernel": {"status": "passed", "build": "9f…", "seconds": 0.2, "data": {…}}, …}}
//
// status: passed, failed; skipped (with a reason), unfinished (out of time): to be run again.
#pragma once

#include <nlohmann/json.hpp>

#include <string>

namespace sconce::gpu_check {

class Results {
 public:
  explicit Results(std::string path) : path_(std::move(path)) {}

  // Loads the results of an earlier run. Throws std::runtime_error if the file is of another kind.
  void resume(const std::string& earlier_path);
  // Returns whether the part has passed or failed with this build of it (the program's fingerprint and the GPU's name).
  bool finished(const std::string& part, const std::string& build) const;

  void set_machine(nlohmann::json facts);
  void set(const std::string& part, const std::string& build, nlohmann::json result);  // and writes the file
  size_t count(const std::string& status) const;
  const nlohmann::json& parts() const { return content_.at("parts"); }

 private:
  void write() const;
  std::string path_;
  nlohmann::json content_ = {{"machine", nlohmann::json::object()}, {"parts", nlohmann::json::object()}};
};

// Returns a fingerprint of a file's content; empty if it cannot be read.
std::string fingerprint(const std::string& path);

}  // namespace sconce::gpu_check
