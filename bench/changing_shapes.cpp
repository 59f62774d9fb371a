// Calls whose shapes change from call to call: sconce beside LibTorch without optimization.
//
// slowest: the largest ratio of a call of sconce to the same call of eager LibTorch, calls 2 to 50, each the median of
// several fresh loads. Bar: 1.2. grown_mib: growth of the process by the last half of 1,000 shapes; flat is about 0.
// alternating: the ratio of a call to that of eager LibTorch in the steady state, where two shapes take turns.
// SCONCE_BENCH_SMOKE: one load, 20 shapes.
#include "bench/measuring.h"
#include "tools/peers/executor_settings.h"
#include "tools/sconce/bench/resident_memory.h"

#include <sconce/sconce.h>

#include <ATen/ATen.h>
#include <benchmark/benchmark.h>
#include <torch/csrc/jit/serialization/import.h>

#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <string>
#include <vector>

namespace {

using sconce::bench::is_smoke;
using sconce::bench::median;
using sconce::bench::model_file;

struct Subject {
  const char* model;
  at::Tensor (*input)(int64_t call);
};
const Subject kSubjects[] = {
    {"mlp", [](int64_t call) { return at::ones({1 + call, 16}); }},
    {"lstm_loop", [](int64_t call) { return at::ones({2 + call % 7, 1 + call, 10}); }},
    {"convnext", [](int64_t call) { return at::ones({1, 3, 32 + 4 * (call % 9), 32 + 4 * (call % 5)}); }},
};

template <typename Call>
double seconds_of(const Call& call) {
  const auto begin = std::chrono::steady_clock::now();
  call();
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
}

double resident_mib() { return sconce::cli::resident_bytes() / (1024 * 1024); }

void changing_shapes(benchmark::State& state, const Subject& subject) {
  const at::NoGradGuard no_grad;
  const int64_t calls = is_smoke() ? 20 : 50;
  const size_t loads = is_smoke() ? 1 : 7;
  std::vector<std::vector<double>> ours(static_cast<size_t>(calls));
  std::vector<std::vector<double>> theirs(static_cast<size_t>(calls));
  for (auto _ : state) {
    for (size_t load = 0; load < loads; ++load) {
      const sconce::Module module = sconce::load(model_file(subject.model));
      torch::jit::Module eager = torch::jit::load(model_file(subject.model));
      const sconce::peers::ExecutorScope unoptimized({.optimize = false});  // concerns LibTorch alone
      for (int64_t call = 0; call < calls; ++call) {
        const at::Tensor input = subject.input(call);
        ours[static_cast<size_t>(call)].push_back(seconds_of([&] { module.forward({input}); }));
        theirs[static_cast<size_t>(call)].push_back(seconds_of([&] { eager.forward({input}); }));
      }
    }
  }
  double slowest = 0;
  for (size_t call = 1; call < static_cast<size_t>(calls); ++call) {
    slowest = std::max(slowest, median(ours[call]) / median(theirs[call]));
  }
  state.counters["first"] = median(ours[0]) / median(theirs[0]);
  state.counters["slowest"] = slowest;

  const int64_t shapes = is_smoke() ? 20 : 1000;
  const sconce::Module module = sconce::load(model_file(subject.model));
  double before = 0;
  for (int64_t shape = 0; shape < shapes; ++shape) {
    if (shape == shapes / 2) {
      before = resident_mib();
    }
    module.forward({subject.input(shape)});
  }
  state.counters["grown_mib"] = resident_mib() - before;
}

// Two shapes in turns.
void alternating_shapes(benchmark::State& state, const Subject& subject) {
  const at::NoGradGuard no_grad;
  const int64_t calls = is_smoke() ? 20 : 400;
  const sconce::Module module = sconce::load(model_file(subject.model));
  torch::jit::Module eager = torch::jit::load(model_file(subject.model));
  const at::Tensor inputs[] = {subject.input(1), subject.input(3)};
  const sconce::peers::ExecutorScope unoptimized({.optimize = false});  // concerns LibTorch alone
  std::vector<double> ours;
  std::vector<double> theirs;
  for (auto _ : state) {
    for (int64_t call = 0; call < 2 * calls; ++call) {
      const at::Tensor& input = inputs[call % 2];
      const double own = seconds_of([&] { module.forward({input}); });
      const double other = seconds_of([&] { eager.forward({input}); });
      if (call >= calls) {
        ours.push_back(own);
        theirs.push_back(other);
      }
    }
  }
  state.counters["alternating"] = median(ours) / median(theirs);
}

}  // namespace

int main(int argc, char** argv) {
  benchmark::Initialize(&argc, argv);
  for (const Subject& subject : kSubjects) {
    benchmark::RegisterBenchmark(subject.model, changing_shapes, subject)->Iterations(1)->Unit(benchmark::kMillisecond);
    const std::string name = std::string(subject.model) + "/alternating";
    benchmark::RegisterBenchmark(name.c_str(), alternating_shapes, subject)->Iterations(1)->Unit(benchmark::kMillisecond);
  }
  benchmark::RunSpecifiedBenchmarks();
  return 0;
}
