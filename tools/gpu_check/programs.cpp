#include "tools/gpu_check/programs.h"

#include <algorithm>
#include <chrono>
#include <csignal>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <thread>

#include <fcntl.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

namespace sconce::gpu_check {
namespace {

using nlohmann::json;
namespace fs = std::filesystem;

struct Outcome {
  bool timed_out = false;
  int exit_code = 0;  // 128 + n if signal n ended it
};

// The program leads a process group of its own, so that a time limit ends its children, too. It ends if this process
// does.
Outcome run_with_limit(std::vector<std::string> arguments, double seconds, const std::string& log_path) {
  std::vector<char*> pointers;
  for (std::string& argument : arguments) {
    pointers.push_back(argument.data());
  }
  pointers.push_back(nullptr);
  const int log = open(log_path.c_str(), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0644);
  const pid_t child = fork();
  if (child == 0) {
    setpgid(0, 0);
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    dup2(log, STDOUT_FILENO);
    dup2(log, STDERR_FILENO);
    execv(pointers[0], pointers.data());
    _exit(127);
  }
  close(log);
  if (child < 0) {
    return {false, 126};
  }
  const auto deadline = std::chrono::steady_clock::now() + std::chrono::duration<double>(seconds);
  Outcome outcome;
  int status = 0;
  while (waitpid(child, &status, WNOHANG) == 0) {
    if (!outcome.timed_out && std::chrono::steady_clock::now() > deadline) {
      outcome.timed_out = true;
      kill(-child, SIGKILL);
    }
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
  }
  outcome.exit_code = WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
  return outcome;
}

json read_json(const std::string& path) {
  std::ifstream file(path);
  return json::parse(file, nullptr, /*allow_exceptions=*/false);
}

// {"tests": 12, "failures": [{"test": "Suite.Name", "message": …}], "skipped": […]} from GoogleTest's report.
json summarize_tests(const json& report) {
  json summary = {{"tests", 0}, {"failures", json::array()}, {"skipped", json::array()}};
  if (!report.is_object()) {
    return summary;
  }
  summary["tests"] = report.value("tests", 0);
  for (const json& suite : report.value("testsuites", json::array())) {
    for (const json& test : suite.value("testsuite", json::array())) {
      const std::string name = suite.value("name", "") + "." + test.value("name", "");
      if (test.value("result", "") == "SKIPPED") {
        summary["skipped"].push_back(name);
      }
      for (const json& failure : test.value("failures", json::array())) {
        summary["failures"].push_back({{"test", name}, {"message", failure.value("failure", "")}});
      }
    }
  }
  return summary;
}

std::string tail(const std::string& path, uintmax_t from) {
  constexpr uintmax_t kMax = 4000;
  std::ifstream file(path, std::ios::binary);
  std::error_code ignored;
  const uintmax_t size = fs::file_size(path, ignored);
  if (ignored) {
    return {};
  }
  file.seekg(std::streamoff(std::max(from, size > kMax ? size - kMax : 0)));
  return {std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>()};
}

}  // namespace

std::vector<Program> find_programs(const std::string& root) {
  std::error_code ignored;
  std::vector<Program> programs;
  for (const fs::directory_entry& entry : fs::directory_iterator(fs::path(root) / "tests", ignored)) {
    if (entry.is_regular_file(ignored) && access(entry.path().c_str(), X_OK) == 0) {
      programs.push_back({"test:" + entry.path().filename().string(), entry.path().string()});
    }
  }
  std::sort(programs.begin(), programs.end(), [](const Program& a, const Program& b) { return a.part < b.part; });
  return programs;
}

json run_program(const Program& program, double seconds, const std::string& log_path) {
  const std::string report_path = log_path + ".report.json";
  const std::vector<std::string> arguments = {program.path, "--gtest_output=json:" + report_path};
  std::error_code ignored;
  const uintmax_t log_size = fs::exists(log_path, ignored) ? fs::file_size(log_path, ignored) : 0;
  const auto start = std::chrono::steady_clock::now();
  const Outcome outcome = run_with_limit(arguments, seconds, log_path);
  const std::chrono::duration<double> elapsed = std::chrono::steady_clock::now() - start;
  const json report = read_json(report_path);
  fs::remove(report_path, ignored);

  json result = {{"seconds", elapsed.count()}, {"exit_code", outcome.exit_code}};
  result["data"] = summarize_tests(report);
  const json& data = result["data"];
  result["summary"] = std::to_string(data["tests"].get<int>()) + " tests, " + std::to_string(data["failures"].size()) +
                      " failures, " + std::to_string(data["skipped"].size()) + " skipped";
  if (outcome.timed_out) {
    result["status"] = "unfinished";
    result["reason"] = "ran past its limit of " + std::to_string(int(seconds)) + " s";
  } else {
    result["status"] = outcome.exit_code == 0 && report.is_object() ? "passed" : "failed";
  }
  if (result["status"] != "passed") {
    result["output_tail"] = tail(log_path, log_size);
  } else if (data["skipped"].size() == data["tests"]) {
    result["status"] = "skipped";
    result["reason"] = "the program skipped all of its tests; the log says why";
  }
  return result;
}

}  // namespace sconce::gpu_check
