// Kernels of groups of pointwise operators, on one thread, beside the operators one by one. Counters, of medians:
// microseconds of a call of each, and of a memcpy of the operand, and
//   ratio      operators / kernel   (above 1: the kernel gains)
// The calls alternate, so that what disturbs the machine disturbs all. SCONCE_BENCH_SMOKE: one small size.
#include "fusion/group_kernel.h"
#include "ir/text/parse.h"
#include "plan/lower.h"
#include "plan/run_plan.h"

#include <ATen/ATen.h>
#include <ATen/Parallel.h>
#include <benchmark/benchmark.h>
#include <c10/core/GradMode.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <cstdlib>
#include <cstring>
#include <string>
#include <vector>

namespace sconce {
namespace {

using Clock = std::chrono::steady_clock;

struct Group {
  const char* name;
  size_t operands;  // each of as many elements
  const char* nodes;
};

constexpr std::array kGroups = {
    Group{"exp", 1, "%r : Tensor = aten::exp(%a)\n  return (%r)"},
    Group{"tanh", 1, "%r : Tensor = aten::tanh(%a)\n  return (%r)"},
    Group{"sigmoid", 1, "%r : Tensor = aten::sigmoid(%a)\n  return (%r)"},
    Group{"gelu", 1, "%r : Tensor = aten::gelu(%a, %none)\n  return (%r)"},
    Group{"gelu_gate", 3,
          "%1 : Tensor = aten::mul(%a, %b)\n  %2 : Tensor = aten::add(%1, %c, %one)\n  %3 : Tensor = aten::gelu(%2, %none)\n"
          "  %4 : Tensor = aten::sigmoid(%a)\n  %r : Tensor = aten::mul(%3, %4)\n  return (%r)"},
    Group{"arithmetic", 2,
          "%1 : Tensor = aten::mul(%a, %b)\n  %2 : Tensor = aten::add(%1, %a, %one)\n  %3 : Tensor = aten::relu(%2)\n"
          "  %r : Tensor = aten::sub(%3, %b, %one)\n  return (%r)"},
    Group{"lstm_cell", 5,
          "%i : Tensor = aten::sigmoid(%a)\n  %f : Tensor = aten::sigmoid(%b)\n  %g : Tensor = aten::tanh(%c)\n"
          "  %o : Tensor = aten::sigmoid(%d)\n  %1 : Tensor = aten::mul(%f, %e)\n  %2 : Tensor = aten::mul(%i, %g)\n"
          "  %r : Tensor = aten::add(%1, %2, %one)\n  %3 : Tensor = aten::tanh(%r)\n  %h : Tensor = aten::mul(%o, %3)\n"
          "  return (%h, %r)"},
};

std::unique_ptr<Plan> plan_of(const Group& group, StepForm form) {
  std::string inputs;
  for (size_t i = 0; i < group.operands; ++i) {
    inputs += (i == 0 ? "%" : ", %") + std::string(1, static_cast<char>('a' + i)) + " : Tensor";
  }
  const std::string text = "graph(" + inputs + "):\n  %one : int = prim::Constant[value=1]()\n" +
                           "  %none : str = prim::Constant[value=\"none\"]()\n  " + group.nodes + "\n";
  return std::move(*lower(parse(text), nullptr, nullptr, form));
}

template <typename Run>
double microseconds(const Run& run) {
  const auto start = Clock::now();
  run();
  return std::chrono::duration<double, std::micro>(Clock::now() - start).count();
}

double median_of(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  return values[values.size() / 2];
}

void run_group(benchmark::State& state) {
  const Group& group = kGroups[static_cast<size_t>(state.range(0))];
  const c10::NoGradGuard no_grad;
  const int threads = at::get_num_threads();
  at::set_num_threads(1);
  const auto kernel = plan_of(group, {.is_prepared = true, .groups = &blocking_kernels()});
  const auto ordinary = plan_of(group, {});
  torch::jit::Stack operands;
  for (size_t i = 0; i < group.operands; ++i) {
    operands.emplace_back(at::randn({state.range(1)}));
  }
  const at::Tensor copy = at::empty({state.range(1)});
  const auto call = [&](const Plan& plan) {
    return microseconds([&] {
      torch::jit::Stack stack = operands;
      run_plan(plan, stack, /*may_skip_autograd=*/true);
      benchmark::DoNotOptimize(stack);
    });
  };
  call(*kernel);
  call(*ordinary);
  std::vector<double> of_kernel;
  std::vector<double> of_operators;
  std::vector<double> of_memcpy;
  for (auto _ : state) {
    of_kernel.push_back(call(*kernel));
    of_operators.push_back(call(*ordinary));
    of_memcpy.push_back(microseconds([&] {
      std::memcpy(copy.mutable_data_ptr(), operands[0].toTensor().const_data_ptr(), copy.nbytes());
      benchmark::ClobberMemory();
    }));
  }
  state.counters["kernel_us"] = median_of(of_kernel);
  state.counters["operators_us"] = median_of(of_operators);
  state.counters["memcpy_us"] = median_of(of_memcpy);
  state.counters["ratio"] = median_of(of_operators) / median_of(of_kernel);
  state.SetLabel(group.name);
  at::set_num_threads(threads);
}

const bool is_smoke = std::getenv("SCONCE_BENCH_SMOKE") != nullptr;

void choose(benchmark::internal::Benchmark* benchmark) {
  for (size_t group = 0; group < kGroups.size(); ++group) {
    for (const int64_t elements : {1 << 10, 1 << 16, 1 << 20, 1 << 24}) {
      if (!is_smoke || elements == 1 << 10) {
        benchmark->Args({static_cast<int64_t>(group), elements});
      }
    }
  }
}
BENCHMARK(run_group)->Apply(choose)->Iterations(is_smoke ? 1 : 15);

}  // namespace
}  // namespace sconce
