// Reductions of others than the last dimensions, as kernels and as operators, one by one. Counters, of medians: microseconds
// of a call of each, and
//   ratio      operators / kernel   (above 1: the kernel gains)
// The calls alternate, so that what disturbs the machine disturbs all. The kernels are those that plans leave to the
// operators, too (fusion/program/cost_model.h). SCONCE_BENCH_SMOKE: small sizes.
#include "bench/measuring.h"
#include "fusion/group/form_groups.h"
#include "fusion/group_compilers.h"
#include "fusion/program/kernel_width.h"
#include "ir/text/parse.h"
#include "lower/lower.h"
#include "plan/run_plan.h"

#include <ATen/ATen.h>
#include <ATen/Parallel.h>
#include <benchmark/benchmark.h>
#include <c10/core/GradMode.h>

#include <array>
#include <chrono>
#include <cstdlib>
#include <string>
#include <vector>

namespace sconce {
namespace {

using sconce::bench::median;

using Clock = std::chrono::steady_clock;

// %a and %b have the sizes; %r and what `results` says are returned.
struct Group {
  const char* name;
  const char* nodes;
  const char* results = "%r";
};

constexpr std::array kGroups = {
    Group{"sum", "%r : Tensor = aten::sum(%a, %dims, %no, %none)"},
    Group{"amax", "%r : Tensor = aten::amax(%a, %dims, %no)"},
    Group{"sum_of_product", "%1 : Tensor = aten::mul(%a, %b)\n  %r : Tensor = aten::sum(%1, %dims, %no, %none)"},
    Group{"bias_of_relu",
          "%g : Tensor = aten::threshold_backward(%a, %b, %zero)\n  %r : Tensor = aten::sum(%g, %dims, %no, %none)",
          "%g, %r"},
    Group{"bias_of_gelu",
          "%g : Tensor = aten::gelu_backward(%a, %b, %erf)\n  %r : Tensor = aten::sum(%g, %dims, %no, %none)", "%g, %r"},
    Group{"var", "%r : Tensor = aten::var(%a, %dims, %no, %no)"},
    Group{"centered", "%1 : Tensor = aten::mean(%a, %dims, %yes, %none)\n  %r : Tensor = aten::sub(%a, %1, %one)"},
};

struct Operand {
  std::vector<int64_t> sizes;
  std::vector<int64_t> dims;
  bool is_small = false;
};
const std::vector<Operand>& operands() {
  static const std::vector<Operand> all = {
      {{16, 64}, {0}, true},
      {{64, 64}, {0}},
      {{16, 1024}, {0}},
      {{512, 256}, {0}},
      {{4096, 256}, {0}},
      {{4096, 3072}, {0}},
      {{100'000, 8}, {0}},
      {{1000, 8}, {0}},
      {{16, 32, 64}, {0, 1}},
      {{64, 50, 64}, {1}},
      {{8, 16, 14, 14}, {0, 2, 3}},
      {{32, 64, 56, 56}, {0, 2, 3}},
      {{64, 512, 2, 2}, {0, 2, 3}},
      {{200, 100}, {1}},
  };
  return all;
}

std::string text_of(const std::vector<int64_t>& numbers) {
  std::string text;
  for (const int64_t number : numbers) {
    text += (text.empty() ? "" : ", ") + std::to_string(number);
  }
  return "[" + text + "]";
}

std::unique_ptr<Plan> plan_of(const Group& group, const Operand& operand, LoweringOptions form) {
  const std::string text =
      "graph(%a : Tensor, %b : Tensor):\n"
      "  %dims : int[] = prim::Constant[value=" +
      text_of(operand.dims) +
      "]()\n"
      "  %one : int = prim::Constant[value=1]()\n"
      "  %zero : int = prim::Constant[value=0]()\n"
      "  %no : bool = prim::Constant[value=0]()\n"
      "  %yes : bool = prim::Constant[value=1]()\n"
      "  %none : NoneType = prim::Constant()\n"
      "  %erf : str = prim::Constant[value=\"none\"]()\n  " +
      group.nodes + "\n  return (" + group.results + ")\n";
  const std::shared_ptr<Graph> graph = parse(text);
  if (form.groups != nullptr) {
    form_groups(*graph);
  }
  return std::move(*lower(graph, nullptr, nullptr, form));
}

void run_group(benchmark::State& state, const Group& group, const Operand& operand, int threads) {
  const c10::NoGradGuard no_grad;
  const int before = at::get_num_threads();
  at::set_num_threads(threads);
  const auto kernels = make_blocking_kernels(kernel_lanes());
  const auto kernel = plan_of(group, operand, {.is_prepared = true, .groups = kernels.get()});
  const auto ordinary = plan_of(group, operand, {});
  const torch::jit::Stack given = {at::randn(operand.sizes), at::randn(operand.sizes)};
  const auto call = [&](const Plan& plan) {
    const auto start = Clock::now();
    torch::jit::Stack stack = given;
    run_plan(plan, stack, AutogradUse::kNone);
    benchmark::DoNotOptimize(stack);
    return std::chrono::duration<double, std::micro>(Clock::now() - start).count();
  };
  call(*kernel);
  call(*ordinary);
  std::vector<double> of_kernel;
  std::vector<double> of_operators;
  for (auto _ : state) {
    of_kernel.push_back(call(*kernel));
    of_operators.push_back(call(*ordinary));
  }
  state.counters["kernel_us"] = median(of_kernel);
  state.counters["operators_us"] = median(of_operators);
  state.counters["ratio"] = median(of_operators) / median(of_kernel);
  at::set_num_threads(before);
}

// sum/[4096, 256]/[0]/1: of a tensor of 4096 by 256, over its first dimension, on one thread
const bool are_registered = [] {
  const bool is_smoke = std::getenv("SCONCE_BENCH_SMOKE") != nullptr;
  for (const Group& group : kGroups) {
    for (const Operand& operand : operands()) {
      for (const int threads : {1, 2}) {
        if (!is_smoke || (operand.is_small && threads == 1)) {
          const std::string name = std::string(group.name) + "/" + text_of(operand.sizes) + "/" + text_of(operand.dims) +
                                   "/" + std::to_string(threads);
          benchmark::RegisterBenchmark(name.c_str(), run_group, group, operand, threads)->MinTime(is_smoke ? 0.001 : 0.1);
        }
      }
    }
  }
  return true;
}();

}  // namespace
}  // namespace sconce
