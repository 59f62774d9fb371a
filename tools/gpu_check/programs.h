// Runs the test programs, which need LibTorch, each in a process of its own with a time limit.
#pragma once

#include <nlohmann/json.hpp>

#include <string>
#include <vector>

namespace sconce::gpu_check {

struct Program {
  std::string part;  // "test:gpu_test"
  std::string path;
};

// Returns the executables in `root`/tests, which use GoogleTest, by name.
std::vector<Program> find_programs(const std::string& root);

// Runs a program and returns a result for Results::set. Appends the program's output to `log_path`.
nlohmann::json run_program(const Program& program, double seconds, const std::string& log_path);

}  // namespace sconce::gpu_check
