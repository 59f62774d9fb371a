// Runs the tests of programs that need LibTorch, each with a time limit.
#pragma once

#include <nlohmann/json.hpp>

#include <functional>
#include <string>
#include <vector>

namespace sconce::gpu_check {

struct Program {
  std::string part;  // "test:gpu_test"
  std::string path;
};

// Returns the executables in `root`/tests, which use GoogleTest, by name.
std::vector<Program> find_programs(const std::string& root);

// Returns the names of the program's tests, "Suite.Name", in the order in which it has them. Empty if it cannot be asked.
std::vector<std::string> tests_of(const Program& program);

// Runs the tests in as few processes as possible, until the time is used up. A test that fails, crashes or runs past
// `seconds_of_test` ends its process: on a GPU, what comes after it would fail, too. Calls `finished` for each test as soon
// as its result is known, with a result for Results::set. Appends output to `log_path`.
void run_tests(const Program& program, std::vector<std::string> tests, double seconds, double seconds_of_test,
               const std::string& log_path,
               const std::function<void(const std::string& test, nlohmann::json result)>& finished);

}  // namespace sconce::gpu_check
