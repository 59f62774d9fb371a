// A step of Adam over all parameters as one plan, whose kernels write in place, beside LibTorch's operators and beside its
// fused Adam, on one thread. They take turns; medians of all rounds. Counters:
//   eager_ratio, fused_ratio    the time of LibTorch's operators, and of _fused_adam_, over that of the plan
//   nanoseconds                 of the plan, for each parameter
// SCONCE_BENCH_SMOKE: few rounds, small tensors.
#include "bench/measuring.h"
#include "fusion/form_groups.h"
#include "fusion/group_kernel.h"
#include "ir/text/parse.h"
#include "lower/lower.h"
#include "plan/run_plan.h"

#include <ATen/ATen.h>
#include <ATen/Parallel.h>
#include <benchmark/benchmark.h>
#include <c10/core/GradMode.h>

#include <chrono>
#include <cmath>
#include <string>
#include <vector>

namespace sconce {
namespace {

using Clock = std::chrono::steady_clock;

std::string replaced(std::string text, const std::string& from, const std::string& to) {
  for (size_t at = 0; (at = text.find(from, at)) != std::string::npos; at += to.size()) {
    text.replace(at, from.size(), to);
  }
  return text;
}

// p, g, m and v are lists of tensors.
std::unique_ptr<Plan> plan_of_adam(size_t count) {
  std::string text =
      "graph(%p : Tensor[], %g : Tensor[], %m : Tensor[], %v : Tensor[], %step : float, %root : float):\n"
      "  %one : int = prim::Constant[value=1]()\n  %a : float = prim::Constant[value=0.9]()\n"
      "  %not_a : float = prim::Constant[value=0.1]()\n  %b : float = prim::Constant[value=0.999]()\n"
      "  %not_b : float = prim::Constant[value=0.001]()\n  %eps : float = prim::Constant[value=1e-8]()\n";
  for (const std::string list : {"%p", "%g", "%m", "%v"}) {
    for (size_t i = 0; i < count; ++i) {
      text += (i == 0 ? "  " : ", ") + list + std::to_string(i) + " : Tensor";
    }
    text += " = prim::ListUnpack(" + list + ")\n";
  }
  for (size_t i = 0; i < count; ++i) {
    text += replaced(
        "  %xNN : Tensor = aten::mul_(%mNN, %a)\n  %yNN : Tensor = aten::add_(%mNN, %gNN, %not_a)\n"
        "  %zNN : Tensor = aten::mul_(%vNN, %b)\n  %wNN : Tensor = aten::addcmul_(%vNN, %gNN, %gNN, %not_b)\n"
        "  %sNN : Tensor = aten::sqrt(%vNN)\n  %dNN : Tensor = aten::div(%sNN, %root)\n"
        "  %eNN : Tensor = aten::add_(%dNN, %eps, %one)\n  %rNN : Tensor = aten::addcdiv_(%pNN, %mNN, %eNN, %step)\n",
        "NN", std::to_string(i));
  }
  const std::shared_ptr<Graph> graph = parse(text + "  return ()\n");
  form_groups(*graph);
  return std::move(*lower(graph, nullptr, nullptr, {.is_prepared = true, .groups = &blocking_kernels()}));
}

struct State {
  std::vector<at::Tensor> p, g, m, v, steps;
  State(size_t count, int64_t elements) {
    for (size_t i = 0; i < count; ++i) {
      p.push_back(at::randn({elements}));
      g.push_back(at::randn({elements}));
      m.push_back(at::randn({elements}));
      v.push_back(at::rand({elements}));
      steps.push_back(at::ones({}));
    }
  }
};

void step_of_eager(State& state, double step, double root) {
  for (size_t i = 0; i < state.p.size(); ++i) {
    state.m[i].mul_(0.9).add_(state.g[i], 0.1);
    state.v[i].mul_(0.999).addcmul_(state.g[i], state.g[i], 0.001);
    state.p[i].addcdiv_(state.m[i], (state.v[i].sqrt() / root).add_(1e-8), step);
  }
}

template <typename Run>
double seconds_of(const Run& run) {
  const auto start = Clock::now();
  run();
  return std::chrono::duration<double>(Clock::now() - start).count();
}

void run_adam(benchmark::State& bench) {
  const c10::NoGradGuard no_grad;
  at::set_num_threads(1);
  const auto count = static_cast<size_t>(bench.range(0));
  const int64_t elements = bench::is_smoke() ? 64 : bench.range(1);
  const auto plan = plan_of_adam(count);
  State own(count, elements);
  State theirs(count, elements);
  State fused(count, elements);
  std::vector<double> by_plan, by_eager, by_fused;
  for (auto _ : bench) {
    by_plan.push_back(seconds_of([&] {
      torch::jit::Stack stack = {own.p, own.g, own.m, own.v, -0.001, 0.5};
      run_plan(*plan, stack, AutogradUse::kNone);
    }));
    by_eager.push_back(seconds_of([&] { step_of_eager(theirs, -0.001, 0.5); }));
    by_fused.push_back(seconds_of([&] {
      at::_fused_adam_(fused.p, fused.g, fused.m, fused.v, {}, fused.steps, 0.001, 0.9, 0.999, 0, 1e-8, false, false);
    }));
  }
  const double own_seconds = bench::median(by_plan);
  bench.counters["eager_ratio"] = bench::median(by_eager) / own_seconds;
  bench.counters["fused_ratio"] = bench::median(by_fused) / own_seconds;
  bench.counters["nanoseconds"] = own_seconds * 1e9 / static_cast<double>(count);
}
const int iterations = bench::is_smoke() ? 3 : 60;
BENCHMARK(run_adam)->Args({10, 1 << 20})->Args({1000, 64})->Unit(benchmark::kMillisecond)->Iterations(iterations);

}  // namespace
}  // namespace sconce
