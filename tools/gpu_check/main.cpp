// gpu_check: runs everything of sconce that needs a GPU, with one command, on a machine where nothing is built and
// LibTorch may be missing. run.sh beside this file finds LibTorch and starts it.
#include "cuda/real_driver.h"
#include "tools/gpu_check/checks.h"
#include "tools/gpu_check/programs.h"
#include "tools/gpu_check/results.h"

#include <CLI/CLI.hpp>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <filesystem>
#include <memory>
#include <optional>

namespace sconce::gpu_check {
namespace {

using nlohmann::json;

struct Settings {
  std::string root = ".";
  std::string out = ".";
  std::string resume;
  std::string only;
  std::string except;
  std::string first;
  std::string nvrtc;
  std::vector<std::string> nvrtc_directories;
  std::string no_libtorch;
  double budget = 540;
  double seconds_of_test = 60;
  bool simulate = false;
};

class Session {
 public:
  explicit Session(const Settings& settings)
      : settings_(settings), results_(settings.out + "/gpu_check.json"), log_path_(settings.out + "/gpu_check.log") {
    if (!settings_.resume.empty()) {
      results_.resume(settings_.resume);
    }
  }

  int run() {
    run_checks();
    for (const Program& program : find_programs(settings_.root)) {
      run_tests_of(program);
    }
    std::printf("passed %zu, failed %zu, skipped %zu, unfinished %zu: %s/gpu_check.json\n", results_.count("passed"),
                results_.count("failed"), results_.count("skipped"), results_.count("unfinished"), settings_.out.c_str());
    if (results_.count("unfinished") != 0) {
      std::printf("run again with --resume FILE, that file, for the unfinished parts\n");
    }
    return results_.count("failed") == 0 && results_.count("unfinished") == 0 ? 0 : 1;
  }

 private:
  static constexpr double kMinSeconds = 2;  // the least time left with which a part is started

  double seconds_left() const {
    return settings_.budget - std::chrono::duration<double>(std::chrono::steady_clock::now() - start_).count();
  }
  static json out_of_time() { return {{"status", "unfinished"}, {"reason", "the time was used up before it began"}}; }

  // A result counts for one build on one kind of GPU.
  std::string build_of(const std::string& path) const { return fingerprint(path) + " on " + gpu_name_; }

  bool wanted(const std::string& part, const std::string& build) const {
    if (part.find(settings_.only) == std::string::npos) {
      return false;
    }
    if (results_.finished(part, build)) {
      std::printf("%-10s %s (earlier)\n", results_.parts()[part].value("status", "").c_str(), part.c_str());
      return false;
    }
    return true;
  }

  void finish(const std::string& part, const std::string& build, json result) {
    std::string details = result.value("reason", result.value("summary", ""));
    if (details.empty() && result.contains("data")) {
      const std::string data = result["data"].dump(-1, ' ', false, json::error_handler_t::replace);
      details = data.size() < 200 ? data : std::string();
    }
    std::printf("%-10s %s %s\n", result.value("status", "").c_str(), part.c_str(), details.c_str());
    if (result.contains("output_tail")) {
      std::printf("%s\n", result["output_tail"].get<std::string>().c_str());
    }
    std::fflush(stdout);
    results_.set(part, build, std::move(result));
  }

  void run_checks() {
    const cuda::NvrtcPlaces places{settings_.nvrtc, settings_.nvrtc_directories};
    const auto nvrtc = cuda::open_nvrtc(places);
    const auto driver = nvrtc ? make_driver() : nvrtc.refusal();
    std::string reason;  // why there is no GPU
    std::optional<Gpu> gpu;
    if (driver) {
      try {
        need((*driver)->init());
        gpu.emplace(**driver, **nvrtc);
        gpu_name_ = gpu->name();
        describe_machine(*gpu);
      } catch (const std::exception& failure) {
        reason = failure.what();
      }
    } else {
      reason = driver.refusal().reason;
    }
    const std::string build = build_of("/proc/self/exe");
    for (const Check& check : checks()) {
      if (!wanted(check.name, build)) {
        continue;
      }
      if (!gpu) {
        finish(check.name, build, {{"status", "skipped"}, {"reason", reason}});
      } else if (seconds_left() < kMinSeconds) {
        finish(check.name, build, out_of_time());
      } else {
        finish(check.name, build, run_check(check, *gpu));
      }
    }
  }

  // A part for each test. What is worth most comes first: `--first` says which tests.
  void run_tests_of(const Program& program) {
    const std::string build = build_of(program.path);
    if (!settings_.no_libtorch.empty()) {
      if (wanted(program.part, build)) {
        finish(program.part, build, {{"status", "skipped"}, {"reason", settings_.no_libtorch}});
      }
      return;
    }
    std::vector<std::string> tests = tests_of(program);
    if (tests.empty()) {
      finish(program.part, build, {{"status", "failed"}, {"reason", "the program lists no tests"}});
      return;
    }
    const auto part_of = [&](const std::string& test) { return program.part + "/" + test; };
    tests.erase(std::remove_if(tests.begin(), tests.end(),
                               [&](const std::string& test) {
                                 const bool is_excepted =
                                     !settings_.except.empty() && test.find(settings_.except) != test.npos;
                                 return is_excepted || !wanted(part_of(test), build);
                               }),
                tests.end());
    std::stable_partition(tests.begin(), tests.end(), [this](const std::string& test) {
      return !settings_.first.empty() && test.find(settings_.first) != test.npos;
    });
    run_tests(program, tests, seconds_left(), settings_.seconds_of_test, log_path_,
              [&](const std::string& test, json result) { finish(part_of(test), build, std::move(result)); });
  }

  static json run_check(const Check& check, Gpu& gpu) {
    const auto start = std::chrono::steady_clock::now();
    json result;
    try {
      result = {{"status", "passed"}, {"data", check.run(gpu)}};
    } catch (const std::exception& failure) {
      result = {{"status", "failed"}, {"reason", failure.what()}};
    }
    result["seconds"] = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
    return result;
  }

  Expected<std::unique_ptr<cuda::Driver>> make_driver() const {
    if (!settings_.simulate) {
      return cuda::open_driver();
    }
    auto fake = std::make_unique<cuda::FakeDriver>();
    define_check_kernels(*fake);
    return fake;
  }

  void describe_machine(Gpu& gpu) {
    int version = 0;
    size_t free_bytes = 0;
    size_t total_bytes = 0;
    need(gpu.driver().driver_version(&version));
    need(gpu.driver().memory_info(&free_bytes, &total_bytes));
    const std::string driver = std::to_string(version / 1000) + "." + std::to_string(version % 1000 / 10);
    results_.set_machine({{"gpu", gpu.name()},
                          {"architecture", gpu.architecture()},
                          {"driver_cuda", driver},
                          {"nvrtc", gpu.nvrtc().version()},
                          {"nvrtc_path", gpu.nvrtc().path()},
                          {"memory_gb", double(total_bytes) / 1e9}});
    std::printf("%s, %s, driver for CUDA %s, NVRTC %s\n", gpu.name().c_str(), gpu.architecture().c_str(), driver.c_str(),
                gpu.nvrtc().version().c_str());
  }

  const Settings& settings_;
  const std::chrono::steady_clock::time_point start_ = std::chrono::steady_clock::now();
  std::string gpu_name_ = "no GPU";
  Results results_;
  std::string log_path_;
};

}  // namespace
}  // namespace sconce::gpu_check

int main(int argc, char** argv) {
  sconce::gpu_check::Settings settings;
  CLI::App app("Checks and measures sconce on a GPU; writes gpu_check.json and gpu_check.log.");
  app.add_option("--root", settings.root, "the folder with tests/ and bench/, whose programs are run");
  app.add_option("--out", settings.out, "where the results go")->check(CLI::ExistingDirectory);
  app.add_option("--resume", settings.resume, "an earlier gpu_check.json: what it has finished is not run again")
      ->check(CLI::ExistingFile);
  app.add_option("--only", settings.only, "only parts whose name contains this");
  app.add_option("--except", settings.except, "no tests whose name contains this");
  app.add_option("--first", settings.first, "run tests whose name contains this before others");
  app.add_option("--test-seconds", settings.seconds_of_test, "seconds, after which a test is ended");
  app.add_option("--budget", settings.budget, "seconds, after which nothing is begun and what runs is ended");
  app.add_option("--nvrtc", settings.nvrtc, "the libnvrtc to use")->envname("SCONCE_NVRTC");
  app.add_option("--nvrtc-dir", settings.nvrtc_directories, "folders to look for libnvrtc in");
  app.add_option("--no-libtorch", settings.no_libtorch, "why there is no LibTorch: its programs are skipped");
  app.add_flag("--simulate", settings.simulate, "a simulated GPU instead of a real one: checks this program itself");
  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& error) {
    return app.exit(error) == 0 ? 0 : 2;
  }
  try {
    return sconce::gpu_check::Session(settings).run();
  } catch (const std::exception& failure) {
    std::fprintf(stderr, "gpu_check: %s\n", failure.what());
    return 2;
  }
}
