// Frozen image models with and without the pass propagate_channels_last, in one run: the calls alternate, so that what
// disturbs the machine disturbs both. Counters, of medians: milliseconds of a call `with` and `without`, and
//   ratio      without / with   (above 1: the pass gains)
// Arguments: the model, the batch, the number of threads. SCONCE_BENCH_SMOKE: one iteration of each.
#include <sconce/sconce.h>
#include "bench/measuring.h"

#include <ATen/ATen.h>
#include <ATen/Parallel.h>
#include <benchmark/benchmark.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <cstdlib>
#include <string>
#include <vector>

namespace {

using sconce::bench::median;

using Clock = std::chrono::steady_clock;

constexpr std::array kModels = {"resnet18", "mobilenet_v3_large", "efficientnet_b0", "densenet", "googlenet_train"};

sconce::Module load_frozen(const std::string& name, bool with_pass) {
  const char* dir = std::getenv("SCONCE_MODELS_DIR");
  sconce::Options options;
  options.frozen(true);
  if (!with_pass) {
    options.passes().disable("propagate_channels_last");
  }
  sconce::Module module = sconce::load(std::string(dir != nullptr ? dir : "build/models") + "/" + name + ".pt", options);
  module.eval();
  return module;
}

double milliseconds(const sconce::Module& module, const at::Tensor& x) {
  const auto start = Clock::now();
  benchmark::DoNotOptimize(module.forward({x}));
  return std::chrono::duration<double, std::milli>(Clock::now() - start).count();
}

void run_model(benchmark::State& state) {
  const std::string name = kModels[static_cast<size_t>(state.range(0))];
  const at::NoGradGuard no_grad;
  const int threads = at::get_num_threads();
  at::set_num_threads(static_cast<int>(state.range(2)));
  const sconce::Module with = load_frozen(name, true);
  const sconce::Module without = load_frozen(name, false);
  const at::Tensor x = at::randn({state.range(1), 3, 224, 224});
  milliseconds(with, x);
  milliseconds(without, x);
  std::vector<double> of_with;
  std::vector<double> of_without;
  for (auto _ : state) {
    of_with.push_back(milliseconds(with, x));
    of_without.push_back(milliseconds(without, x));
  }
  at::set_num_threads(threads);
  state.counters["with"] = median(of_with);
  state.counters["without"] = median(of_without);
  state.counters["ratio"] = median(of_without) / median(of_with);
  state.SetLabel(name);
}

const bool is_smoke = std::getenv("SCONCE_BENCH_SMOKE") != nullptr;
BENCHMARK(run_model)
    ->ArgsProduct({benchmark::CreateDenseRange(0, kModels.size() - 1, 1),
                   is_smoke ? std::vector<int64_t>{1} : std::vector<int64_t>{1, 8},
                   is_smoke ? std::vector<int64_t>{1} : std::vector<int64_t>{1, 2}})
    ->Unit(benchmark::kMillisecond)
    ->Iterations(is_smoke ? 1 : 15);

}  // namespace
