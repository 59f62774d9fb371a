// A backward by plan beside LibTorch's engine, on one thread. They take turns; medians of all rounds. Counter:
//   eager_ratio   the time of the engine over that of the plan
// SCONCE_BENCH_SMOKE: few rounds.
#include "bench/measuring.h"

#include <sconce/compiled_backward.h>

#include <ATen/ATen.h>
#include <ATen/Parallel.h>
#include <benchmark/benchmark.h>

#include <chrono>
#include <vector>

namespace sconce {
namespace {

using Clock = std::chrono::steady_clock;

double seconds_of_backward(const at::Tensor& loss) {
  const auto start = Clock::now();
  loss.backward();
  return std::chrono::duration<double>(Clock::now() - start).count();
}

// Two hidden layers, a mean squared error. Gradients are dropped after each step.
void run_mlp(benchmark::State& bench) {
  at::set_num_threads(1);
  const int64_t width = bench.range(0);
  std::vector<at::Tensor> weights, biases;
  for (int layer = 0; layer < 3; ++layer) {
    weights.push_back((at::randn({width, width}) * 0.1).set_requires_grad(true));
    biases.push_back(at::zeros({width}).set_requires_grad(true));
  }
  const at::Tensor input = at::randn({8, width});
  const at::Tensor target = at::randn({8, width});
  const auto loss = [&] {
    for (size_t i = 0; i < weights.size(); ++i) {
      weights[i].mutable_grad() = at::Tensor();
      biases[i].mutable_grad() = at::Tensor();
    }
    at::Tensor hidden = input;
    for (size_t i = 0; i < weights.size(); ++i) {
      hidden = at::linear(hidden, weights[i], biases[i]);
      hidden = i + 1 < weights.size() ? at::tanh(hidden) : hidden;
    }
    return at::mse_loss(hidden, target);
  };
  const BackwardCache cache(Options().compile(CompileMode::kBlocking));
  std::vector<double> by_engine, by_plan;
  {
    const CompiledBackward scope(cache);
    loss().backward();
    loss().backward();
  }
  for (auto _ : bench) {
    by_engine.push_back(seconds_of_backward(loss()));
    const CompiledBackward scope(cache);
    by_plan.push_back(seconds_of_backward(loss()));
  }
  bench.counters["eager_ratio"] = bench::median(by_engine) / bench::median(by_plan);
  bench.counters["microseconds"] = bench::median(by_plan) * 1e6;
}
const int iterations = bench::is_smoke() ? 3 : 2000;
BENCHMARK(run_mlp)->Arg(8)->Arg(64)->Arg(256)->Unit(benchmark::kMicrosecond)->Iterations(iterations);

}  // namespace
}  // namespace sconce
