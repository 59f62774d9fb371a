// A step of a captured optimizer beside a step of the same optimizer by LibTorch, and of Adam beside LibTorch's fused Adam,
// on one thread. They take turns; medians of all rounds. Counters:
//   eager_ratio    the time of torch::optim's step over that of the captured step
//   fused_ratio    the same of _fused_adam_
//   nanoseconds    of the captured step, for each parameter
// Arguments: the number of parameters, and the elements of each; 0: as many as in layers of many sizes.
// SCONCE_BENCH_SMOKE: few rounds, small tensors.
#include "bench/measuring.h"

#include <sconce/captured_optimizer.h>

#include <ATen/ATen.h>
#include <ATen/Parallel.h>
#include <benchmark/benchmark.h>
#include <c10/core/GradMode.h>
#include <torch/optim/adam.h>
#include <torch/optim/adamw.h>
#include <torch/optim/sgd.h>

#include <algorithm>
#include <chrono>
#include <memory>
#include <vector>

namespace sconce {
namespace {

using Clock = std::chrono::steady_clock;
using Tensors = std::vector<at::Tensor>;
using OptimizerPtr = std::unique_ptr<torch::optim::Optimizer>;

Tensors make_parameters(size_t count, int64_t elements) {
  Tensors parameters;
  for (size_t i = 0; i < count; ++i) {
    const int64_t size = elements != 0 ? elements : static_cast<int64_t>(16 + 7 * (i % 40));
    parameters.push_back(at::randn({size}).requires_grad_());
    parameters.back().mutable_grad() = at::randn({size});
  }
  return parameters;
}

template <typename Run>
double seconds_of(const Run& run) {
  const auto start = Clock::now();
  run();
  return std::chrono::duration<double>(Clock::now() - start).count();
}

// _fused_adam_, which LibTorch's C++ optimizers do not call.
class FusedAdam {
 public:
  explicit FusedAdam(const Tensors& parameters) : p_(parameters) {
    for (const at::Tensor& parameter : p_) {
      g_.push_back(parameter.grad());
      m_.push_back(at::zeros_like(parameter));
      v_.push_back(at::zeros_like(parameter));
      steps_.push_back(at::ones({}));
    }
  }
  void step() {
    const c10::NoGradGuard no_grad;
    at::_fused_adam_(p_, g_, m_, v_, {}, steps_, 0.001, 0.9, 0.999, 0, 1e-8, false, false);
  }

 private:
  Tensors p_, g_, m_, v_, steps_;
};

template <typename MakeOptimizer>
void run_steps(benchmark::State& bench, const MakeOptimizer& make, bool has_fused) {
  at::set_num_threads(1);
  const auto count = static_cast<size_t>(bench.range(0));
  const int64_t elements = bench::is_smoke() ? std::min<int64_t>(64, bench.range(1)) : bench.range(1);
  const OptimizerPtr optimizer = make(make_parameters(count, elements));
  CapturedOptimizer captured(*optimizer, Options().compile(CompileMode::kBlocking));
  FusedAdam fused(make_parameters(count, elements));
  captured.step();
  std::vector<double> by_capture, by_eager, by_fused;
  for (auto _ : bench) {
    by_capture.push_back(seconds_of([&] { captured.step(); }));
    by_eager.push_back(seconds_of([&] { optimizer->step(); }));
    by_fused.push_back(has_fused ? seconds_of([&] { fused.step(); }) : 0);
  }
  if (const OptimizerExplanation explanation = captured.explain(); explanation.captured_steps != explanation.steps) {
    bench.SkipWithError(to_string(explanation).c_str());
    return;
  }
  const double seconds = bench::median(by_capture);
  bench.counters["eager_ratio"] = bench::median(by_eager) / seconds;
  if (has_fused) {
    bench.counters["fused_ratio"] = bench::median(by_fused) / seconds;
  }
  bench.counters["nanoseconds"] = seconds * 1e9 / static_cast<double>(count);
}

void adam(benchmark::State& bench) {
  run_steps(
      bench, [](const Tensors& parameters) { return std::make_unique<torch::optim::Adam>(parameters); }, /*has_fused=*/true);
}
void adam_w(benchmark::State& bench) {
  run_steps(
      bench, [](const Tensors& parameters) { return std::make_unique<torch::optim::AdamW>(parameters); },
      /*has_fused=*/false);
}
void sgd(benchmark::State& bench) {
  run_steps(
      bench, [](const Tensors& parameters) { return std::make_unique<torch::optim::SGD>(parameters, 0.01); },
      /*has_fused=*/false);
}
void sgd_momentum(benchmark::State& bench) {
  run_steps(
      bench,
      [](const Tensors& parameters) {
        return std::make_unique<torch::optim::SGD>(parameters, torch::optim::SGDOptions(0.01).momentum(0.9));
      },
      /*has_fused=*/false);
}

void set_sizes(benchmark::internal::Benchmark* bench) {
  bench->Args({10, 1 << 20})->Args({1000, 64})->Args({200, 0})->Unit(benchmark::kMillisecond);
  bench->Iterations(bench::is_smoke() ? 3 : 60);
}
BENCHMARK(adam)->Apply(set_sizes);
BENCHMARK(adam_w)->Apply(set_sizes);
BENCHMARK(sgd)->Apply(set_sizes);
BENCHMARK(sgd_momentum)->Apply(set_sizes);

}  // namespace
}  // namespace sconce
