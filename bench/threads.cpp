// Calls of one module from one thread and from two: how much more two do in the same time.
//
// Bar: 1.8 (the counter `ratio`, of medians). Operators run on one thread each (OMP_NUM_THREADS counts as one here), so that
// the calls are all there is to run in parallel. Rounds of one and of two threads alternate. `libtorch` is LibTorch's own
// executor without optimisation, for comparison. SCONCE_BENCH_SMOKE: one round.
#include "tools/peers/executor_settings.h"

#include <sconce/sconce.h>

#include <ATen/ATen.h>
#include <ATen/Parallel.h>
#include <benchmark/benchmark.h>
#include <torch/csrc/jit/serialization/import.h>

#include <algorithm>
#include <array>
#include <barrier>
#include <chrono>
#include <cstdlib>
#include <functional>
#include <thread>
#include <vector>

namespace {

using Call = std::function<void()>;

std::string model_file(const std::string& name) {
  const char* dir = std::getenv("SCONCE_MODELS_DIR");
  return std::string(dir != nullptr ? dir : "build/models") + "/" + name + ".pt";
}

// Calls a second of `threads` threads together.
double throughput(int threads, int calls_per_thread, const Call& call) {
  std::barrier start(threads + 1);
  std::vector<std::jthread> running;
  for (int i = 0; i < threads; ++i) {
    running.emplace_back([&] {
      const at::NoGradGuard no_grad;
      at::get_num_threads();  // sets the thread up; sconce does that itself, LibTorch's executor does not
      call();                 // what a thread does once
      start.arrive_and_wait();
      for (int n = 0; n < calls_per_thread; ++n) {
        call();
      }
    });
  }
  start.arrive_and_wait();
  const auto begin = std::chrono::steady_clock::now();
  running.clear();  // joins
  const std::chrono::duration<double> time = std::chrono::steady_clock::now() - begin;
  return threads * calls_per_thread / time.count();
}

double median(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  return values[values.size() / 2];
}

void measure(benchmark::State& state, const Call& call) {
  std::array<std::vector<double>, 2> of_threads;
  for (auto _ : state) {
    for (const int threads : {1, 2}) {
      of_threads[static_cast<size_t>(threads - 1)].push_back(throughput(threads, 400, call));
    }
  }
  state.counters["one"] = median(of_threads[0]);
  state.counters["two"] = median(of_threads[1]);
  state.counters["ratio"] = median(of_threads[1]) / median(of_threads[0]);
}

void sconce_threads(benchmark::State& state) {
  const sconce::Module module = sconce::load(model_file("lstm_loop"));
  const at::Tensor input = at::ones({9, 3, 10});
  measure(state, [&] { benchmark::DoNotOptimize(module.forward({input})); });
}

void libtorch_threads(benchmark::State& state) {
  const sconce::peers::ExecutorScope unoptimised({.optimize = false});
  torch::jit::Module module = torch::jit::load(model_file("lstm_loop"));
  const at::Tensor input = at::ones({9, 3, 10});
  measure(state, [&] { benchmark::DoNotOptimize(module.forward({input})); });
}

const int rounds = std::getenv("SCONCE_BENCH_SMOKE") != nullptr ? 1 : 15;
const bool one_thread_each = [] {
  at::set_num_threads(1);
  return true;
}();
BENCHMARK(sconce_threads)->Iterations(rounds)->Unit(benchmark::kMillisecond);
BENCHMARK(libtorch_threads)->Iterations(rounds)->Unit(benchmark::kMillisecond);

}  // namespace
