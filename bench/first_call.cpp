// Load and first call in a process of its own: sconce beside LibTorch without optimization.
//
// Bar: 1.1 × LibTorch (the counter `ratio`, of medians of 20). Each iteration starts one process per side, in turn first;
// a process measures from before the load to after the call. SCONCE_BENCH_SMOKE: one iteration.
#include "bench/measuring.h"
#include "tools/peers/executor_settings.h"

#include <sconce/sconce.h>

#include <ATen/ATen.h>
#include <benchmark/benchmark.h>
#include <torch/csrc/jit/serialization/import.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <cstdio>
#include <filesystem>
#include <iostream>
#include <memory>

namespace {

using sconce::bench::is_smoke;
using sconce::bench::median;
using sconce::bench::model_file;

struct Subject {
  const char* model;
  std::vector<int64_t> input;  // sizes
};
const std::array kSubjects = {
    Subject{"resnet18", {1, 3, 224, 224}}, Subject{"lstm_loop", {9, 3, 10}},
    Subject{"vit_b_16", {1, 3, 224, 224}},  // 24,000 nodes inlined
};
constexpr std::array kSides = {"sconce", "libtorch"};

// In the child: prints the milliseconds.
int load_and_call(const std::string& side, const std::string& model) {
  const auto* subject =
      std::find_if(kSubjects.begin(), kSubjects.end(), [&](const Subject& each) { return each.model == model; });
  const at::Tensor input = at::ones(subject->input);
  const at::NoGradGuard no_grad;
  const sconce::peers::ExecutorScope unoptimized({.optimize = false});  // concerns LibTorch alone
  const auto begin = std::chrono::steady_clock::now();
  c10::IValue output;
  if (side == "sconce") {
    const sconce::Module module = sconce::load(model_file(model));
    output = module.forward({input});
  } else {
    torch::jit::Module module = torch::jit::load(model_file(model));
    output = module.forward({input});
  }
  benchmark::DoNotOptimize(output);
  const std::chrono::duration<double, std::milli> time = std::chrono::steady_clock::now() - begin;
  std::cout << time.count() << std::endl;
  return 0;
}

double run_child(const std::string& side, const std::string& model) {
  const std::string program = std::filesystem::read_symlink("/proc/self/exe").string();
  const std::string command = "'" + program + "' --load-and-call " + side + " " + model;
  const std::unique_ptr<FILE, int (*)(FILE*)> pipe(popen(command.c_str(), "r"), &pclose);
  double milliseconds = 0;
  if (!pipe || std::fscanf(pipe.get(), "%lf", &milliseconds) != 1) {
    throw std::runtime_error("'" + command + "' printed no time");
  }
  return milliseconds;
}

void first_call(benchmark::State& state, const Subject& subject) {
  std::array<std::vector<double>, kSides.size()> milliseconds;
  size_t first = 0;
  for (auto _ : state) {
    for (size_t i = 0; i < kSides.size(); ++i) {
      const size_t side = (first + i) % kSides.size();
      milliseconds[side].push_back(run_child(kSides[side], subject.model));
    }
    first = 1 - first;
    state.SetIterationTime(milliseconds[0].back() / 1e3);
  }
  for (size_t side = 0; side < kSides.size(); ++side) {
    state.counters[std::string(kSides[side]) + "_ms"] = median(milliseconds[side]);
  }
  state.counters["ratio"] = median(milliseconds[0]) / median(milliseconds[1]);
}

}  // namespace

int main(int argc, char** argv) {
  if (argc == 4 && std::string(argv[1]) == "--load-and-call") {
    return load_and_call(argv[2], argv[3]);
  }
  benchmark::Initialize(&argc, argv);
  for (const Subject& subject : kSubjects) {
    benchmark::RegisterBenchmark(subject.model, first_call, subject)
        ->UseManualTime()
        ->Unit(benchmark::kMillisecond)
        ->Iterations(is_smoke() ? 1 : 20);
  }
  benchmark::RunSpecifiedBenchmarks();
  return 0;
}
