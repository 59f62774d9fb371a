// Calls of one module from one thread and from two: how much more two do in the same time.
//
// Bar: 1.8 (the counter `sconce`). `libtorch` is LibTorch's own executor without optimization, `arithmetic` a loop in
// registers: what the machine gives a second thread at that time. Operators run on one thread each (OMP_NUM_THREADS counts
// as one here), so that the calls are all there is to run in parallel. A counter is the median, over the iterations, of
// calls a second of two threads / one; in an iteration each caller has a turn of one thread, one of two, and one of one,
// 30 ms each, so that what else the machine does meets both alike. SCONCE_BENCH_SMOKE: one iteration.
#include "bench/measuring.h"
#include "tools/peers/executor_settings.h"

#include <sconce/sconce.h>

#include <ATen/ATen.h>
#include <ATen/Parallel.h>
#include <benchmark/benchmark.h>
#include <torch/csrc/jit/serialization/import.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <barrier>
#include <chrono>
#include <cstdlib>
#include <functional>
#include <numeric>
#include <thread>
#include <vector>

namespace {

using sconce::bench::median;
using sconce::bench::model_file;

using Clock = std::chrono::steady_clock;

// One who calls: a name, and what a call is.
struct Caller {
  const char* name;
  std::function<void()> call;
};

// Calls a second of `threads` threads together. Each thread counts for itself until it is told to stop.
double throughput(int threads, const std::function<void()>& call) {
  std::vector<double> rates(static_cast<size_t>(threads));
  std::barrier start(threads + 1);
  std::atomic<bool> stop = false;
  {
    std::vector<std::jthread> running;
    for (double& rate : rates) {
      running.emplace_back([&] {
        const at::NoGradGuard no_grad;
        at::get_num_threads();  // sets the thread up; sconce does that itself, LibTorch's executor does not
        call();                 // what a thread does once
        start.arrive_and_wait();
        const auto begin = Clock::now();
        int64_t calls = 0;
        while (!stop.load(std::memory_order_relaxed)) {
          call();
          ++calls;
        }
        rate = static_cast<double>(calls) / std::chrono::duration<double>(Clock::now() - begin).count();
      });
    }
    start.arrive_and_wait();
    std::this_thread::sleep_for(std::chrono::milliseconds(30));
    stop = true;
  }  // joins
  return std::accumulate(rates.begin(), rates.end(), 0.0);
}

// A part of a millisecond that shares no memory.
void arithmetic() {
  uint64_t value = 1;
  for (int i = 0; i < 100000; ++i) {
    benchmark::DoNotOptimize(value = value * 3 + 1);
  }
}

void two_threads_over_one(benchmark::State& state) {
  const at::Tensor input = at::ones({9, 3, 10});
  const sconce::Module ours = sconce::load(model_file("lstm_loop"));
  const sconce::peers::ExecutorScope unoptimized({.optimize = false});  // concerns LibTorch alone
  torch::jit::Module theirs = torch::jit::load(model_file("lstm_loop"));
  const std::array callers = {
      Caller{"sconce", [&] { benchmark::DoNotOptimize(ours.forward({input})); }},
      Caller{"libtorch", [&] { benchmark::DoNotOptimize(theirs.forward({input})); }},
      Caller{"arithmetic", arithmetic},
  };
  std::array<std::vector<double>, callers.size()> ratios;
  for (auto _ : state) {
    for (size_t i = 0; i < callers.size(); ++i) {
      const double before = throughput(1, callers[i].call);
      const double two = throughput(2, callers[i].call);
      const double after = throughput(1, callers[i].call);
      ratios[i].push_back(2 * two / (before + after));
    }
  }
  for (size_t i = 0; i < callers.size(); ++i) {
    state.counters[callers[i].name] = median(ratios[i]);
  }
}

const int iterations = std::getenv("SCONCE_BENCH_SMOKE") != nullptr ? 1 : 60;
const bool one_thread_each = [] {
  at::set_num_threads(1);
  return true;
}();
BENCHMARK(two_threads_over_one)->Iterations(iterations)->Unit(benchmark::kMillisecond);

}  // namespace
