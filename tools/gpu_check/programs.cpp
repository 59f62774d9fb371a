#include "tools/gpu_check/programs.h"

#include <algorithm>
#include <chrono>
#include <csignal>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <optional>
#include <regex>
#include <sstream>
#include <thread>
#include <utility>

#include <fcntl.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

namespace sconce::gpu_check {
namespace {

using nlohmann::json;
namespace fs = std::filesystem;

using Clock = std::chrono::steady_clock;

double seconds_since(Clock::time_point start) { return std::chrono::duration<double>(Clock::now() - start).count(); }

// A program, in a process group of its own, so that its children end with it. It ends if this process does.
class Process {
 public:
  Process(std::vector<std::string> arguments, const std::string& log_path) {
    std::vector<char*> pointers;
    for (std::string& argument : arguments) {
      pointers.push_back(argument.data());
    }
    pointers.push_back(nullptr);
    const int log = open(log_path.c_str(), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0644);
    child_ = fork();
    if (child_ == 0) {
      setpgid(0, 0);
      prctl(PR_SET_PDEATHSIG, SIGKILL);
      dup2(log, STDOUT_FILENO);
      dup2(log, STDERR_FILENO);
      execv(pointers[0], pointers.data());
      _exit(127);
    }
    close(log);
    exit_code_ = child_ < 0 ? 126 : -1;
  }
  ~Process() { end(); }
  Process(const Process&) = delete;
  Process& operator=(const Process&) = delete;

  bool has_ended() {
    int status = 0;
    if (exit_code_ < 0 && waitpid(child_, &status, WNOHANG) != 0) {
      exit_code_ = WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
    }
    return exit_code_ >= 0;
  }
  void end() {
    while (!has_ended()) {
      kill(-child_, SIGKILL);
      std::this_thread::sleep_for(std::chrono::milliseconds(5));
    }
  }
  int exit_code() const { return exit_code_; }  // 128 + n if signal n ended it

 private:
  pid_t child_ = -1;
  int exit_code_ = -1;
};

// Reads what a program adds to a file, line by line.
class Lines {
 public:
  explicit Lines(std::string path) : path_(std::move(path)) {
    std::error_code ignored;
    const uintmax_t size = fs::file_size(path_, ignored);
    read_ = ignored ? 0 : size;
  }
  // Returns the lines that are complete by now.
  std::vector<std::string> next() {
    std::ifstream file(path_, std::ios::binary);
    file.seekg(static_cast<std::streamoff>(read_));
    std::string text{std::istreambuf_iterator<char>(file), {}};
    const size_t end = text.rfind('\n');
    text.resize(end == text.npos ? 0 : end + 1);
    read_ += text.size();
    std::vector<std::string> lines;
    std::istringstream stream(text);
    for (std::string line; std::getline(stream, line);) {
      lines.push_back(std::move(line));
    }
    return lines;
  }

 private:
  const std::string path_;
  uintmax_t read_;
};

// What GoogleTest prints of one test: "[       OK ] Suite.Name (12 ms)".
struct Report {
  std::string verdict;  // "RUN", "OK", "FAILED", "SKIPPED"
  std::string test;
  double seconds = 0;
};

std::optional<Report> report_in(const std::string& line) {
  static const std::regex pattern(R"(^\[\s*(RUN|OK|FAILED|SKIPPED)\s*\] ([^\s,]+)(?:, where .*)?(?: \((\d+) ms\))?$)");
  std::smatch found;
  if (!std::regex_match(line, found, pattern)) {
    return std::nullopt;
  }
  return Report{found[1], found[2], found[3].matched ? std::stod(found[3]) / 1000 : 0};
}

// One process of run_tests. Returns the tests that it has not come to.
class TestRun {
 public:
  using Finished = std::function<void(const std::string& test, json result)>;

  TestRun(const Program& program, const std::vector<std::string>& tests, const std::string& log_path,
          const Finished& finished)
      : left_(tests),
        finished_(finished),
        lines_(log_path),
        process_({program.path, "--gtest_color=no", "--gtest_filter=" + joined(tests)}, log_path) {}

  std::vector<std::string> run(double seconds, double seconds_of_test) {
    const Clock::time_point start = Clock::now();
    for (bool has_ended = false; !has_ended && !has_failed_;) {
      has_ended = process_.has_ended();
      read();
      if (!has_ended && !has_failed_ && !now_.empty() &&
          (seconds_since(began_) > seconds_of_test || seconds_since(start) > seconds)) {
        process_.end();
        stop("unfinished", "ran past its limit of " + std::to_string(static_cast<int>(seconds_since(began_))) + " s");
        return left_;
      }
      std::this_thread::sleep_for(std::chrono::milliseconds(10));
    }
    process_.end();
    if (!has_failed_ && !now_.empty()) {
      stop("failed", "the program ended with " + std::to_string(process_.exit_code()));
    } else if (!has_failed_ && !has_begun_ && !left_.empty()) {
      now_ = left_.front();
      stop("failed", "the program ended with " + std::to_string(process_.exit_code()) + " before its first test");
    }
    return left_;
  }

 private:
  // Returns the lines between the one that names the place and the verdict.
  static std::string message_in(const std::string& output) {
    const size_t begin = output.find('\n');
    const size_t end = output.rfind("[  SKIPPED ]");
    const bool has_message = begin != output.npos && end != output.npos && begin + 1 < end;
    return has_message ? output.substr(begin + 1, end - begin - 2) : "it says no reason";
  }

  static std::string joined(const std::vector<std::string>& tests) {
    std::string all;
    for (const std::string& test : tests) {
      all += (all.empty() ? "" : ":") + test;
    }
    return all;
  }

  void read() {
    for (const std::string& line : lines_.next()) {
      const auto report = report_in(line);
      output_ += line + "\n";
      if (!report || has_failed_) {
        continue;
      }
      if (report->verdict == "RUN") {
        now_ = report->test;
        began_ = Clock::now();
        has_begun_ = true;
        output_.clear();
      } else if (report->test == now_) {
        has_failed_ = report->verdict == "FAILED";
        finish(report->verdict == "OK" ? "passed" : has_failed_ ? "failed" : "skipped", report->seconds, {});
      }
    }
  }

  void stop(const std::string& status, const std::string& reason) { finish(status, seconds_since(began_), reason); }

  void finish(const std::string& status, double seconds, const std::string& reason) {
    constexpr size_t kMaxOutput = 4000;
    json result = {{"status", status}, {"seconds", seconds}};
    if (status == "skipped") {
      result["reason"] = message_in(output_);
    } else if (!reason.empty()) {
      result["reason"] = reason;
    }
    if (status == "failed" || status == "unfinished") {
      result["output_tail"] = output_.substr(output_.size() - std::min(output_.size(), kMaxOutput));
    }
    left_.erase(std::remove(left_.begin(), left_.end(), now_), left_.end());
    finished_(std::exchange(now_, {}), std::move(result));
  }

  std::vector<std::string> left_;
  const Finished& finished_;
  Lines lines_;
  Process process_;
  std::string now_;  // the test that runs
  Clock::time_point began_ = Clock::now();
  bool has_begun_ = false;
  bool has_failed_ = false;
  std::string output_;  // since the test began
};

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

std::vector<std::string> tests_of(const Program& program) {
  const std::string path = (fs::temp_directory_path() / ("gpu_check_tests_" + std::to_string(getpid()))).string();
  constexpr double kMaxSeconds = 60;
  {
    const Clock::time_point start = Clock::now();
    Process process({program.path, "--gtest_list_tests"}, path);
    while (!process.has_ended() && seconds_since(start) < kMaxSeconds) {
      std::this_thread::sleep_for(std::chrono::milliseconds(5));
    }
  }
  std::vector<std::string> tests;
  std::string suite;
  std::ifstream file(path);
  for (std::string line; std::getline(file, line);) {
    line.resize(std::min(line.find('#'), line.size()));  // a comment tells the parameter
    line.resize(line.find_last_not_of(' ') + 1);
    if (line.starts_with("  ")) {
      tests.push_back(suite + line.substr(2));
    } else if (line.ends_with('.')) {
      suite = line;
    }
  }
  fs::remove(path);
  return tests;
}

void run_tests(const Program& program, std::vector<std::string> tests, double seconds, double seconds_of_test,
               const std::string& log_path, const std::function<void(const std::string& test, json result)>& finished) {
  const Clock::time_point start = Clock::now();
  while (!tests.empty() && seconds_since(start) < seconds) {
    tests = TestRun(program, tests, log_path, finished).run(seconds - seconds_since(start), seconds_of_test);
  }
  for (const std::string& test : tests) {
    finished(test, {{"status", "unfinished"}, {"reason", "the time was used up before it began"}});
  }
}

}  // namespace sconce::gpu_check
