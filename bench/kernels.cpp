// Kernels of groups of operators, on one thread, beside the operators one by one. Counters, of medians: microseconds of a
// call of each, and of a memcpy of the first operand, and
//   ratio      operators / kernel   (above 1: the kernel gains)
// The calls alternate, so that what disturbs the machine disturbs all. SCONCE_BENCH_SMOKE: one small size.
#include "bench/measuring.h"
#include "fusion/group/form_groups.h"
#include "fusion/group_compilers.h"
#include "ir/text/parse.h"
#include "lower/lower.h"
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

using sconce::bench::median;

using Clock = std::chrono::steady_clock;

// Matrices are square. A group of pointwise operators sees their elements only.
struct Group {
  const char* name;
  const char* operands;  // "m": a matrix, "r": a vector as long as a row; %a, %b, …
  const char* nodes;     // return %r, or what `results` says
  const char* results = "%r";
};

// The groups from "gelu_gate" on are those of bench/peers.py, by their names.
constexpr std::array kGroups = {
    Group{"exp", "m", "%r : Tensor = aten::exp(%a)"},
    Group{"tanh", "m", "%r : Tensor = aten::tanh(%a)"},
    Group{"sigmoid", "m", "%r : Tensor = aten::sigmoid(%a)"},
    Group{"gelu", "m", "%r : Tensor = aten::gelu(%a, %erf)"},
    Group{"arithmetic", "mm",
          "%1 : Tensor = aten::mul(%a, %b)\n  %2 : Tensor = aten::add(%1, %a, %one)\n  %3 : Tensor = aten::relu(%2)\n"
          "  %r : Tensor = aten::sub(%3, %b, %one)"},
    Group{"gelu_gate", "mmm",
          "%1 : Tensor = aten::mul(%a, %b)\n  %2 : Tensor = aten::add(%1, %c, %one)\n  %3 : Tensor = aten::gelu(%2, %erf)\n"
          "  %4 : Tensor = aten::sigmoid(%a)\n  %r : Tensor = aten::mul(%3, %4)"},
    Group{"layer_norm_gelu", "mrr",
          "%1 : Tensor = aten::layer_norm(%a, %row, %b, %c, %epsilon, %yes)\n  %r : Tensor = aten::gelu(%1, %erf)"},
    Group{"masked_softmax", "mm",
          "%1 : Tensor = aten::mul(%a, %scale)\n  %2 : Tensor = aten::add(%1, %b, %one)\n"
          "  %r : Tensor = aten::softmax(%2, %last, %none)"},
    Group{"rms_norm", "mmr",
          "%x : Tensor = aten::add(%a, %b, %one)\n  %1 : Tensor = aten::mul(%x, %x)\n"
          "  %2 : Tensor = aten::mean(%1, %lasts, %yes, %none)\n  %3 : Tensor = aten::add(%2, %epsilon, %one)\n"
          "  %4 : Tensor = aten::rsqrt(%3)\n  %5 : Tensor = aten::mul(%x, %4)\n  %r : Tensor = aten::mul(%5, %c)",
          "%r, %x"},
    Group{"lstm_cell", "mmmmm",
          "%i : Tensor = aten::sigmoid(%a)\n  %f : Tensor = aten::sigmoid(%b)\n  %g : Tensor = aten::tanh(%c)\n"
          "  %o : Tensor = aten::sigmoid(%d)\n  %1 : Tensor = aten::mul(%f, %e)\n  %2 : Tensor = aten::mul(%i, %g)\n"
          "  %r : Tensor = aten::add(%1, %2, %one)\n  %3 : Tensor = aten::tanh(%r)\n  %h : Tensor = aten::mul(%o, %3)",
          "%h, %r"},
};

std::unique_ptr<Plan> plan_of(const Group& group, int64_t row, LoweringOptions form) {
  std::string inputs;
  for (size_t i = 0; group.operands[i] != '\0'; ++i) {
    inputs += (i == 0 ? "%" : ", %") + std::string(1, static_cast<char>('a' + i)) + " : Tensor";
  }
  const std::string text = "graph(" + inputs +
                           "):\n"
                           "  %one : int = prim::Constant[value=1]()\n"
                           "  %last : int = prim::Constant[value=-1]()\n"
                           "  %lasts : int[] = prim::Constant[value=[-1]]()\n"
                           "  %row : int[] = prim::Constant[value=[" +
                           std::to_string(row) +
                           "]]()\n"
                           "  %yes : bool = prim::Constant[value=1]()\n"
                           "  %none : NoneType = prim::Constant()\n"
                           "  %erf : str = prim::Constant[value=\"none\"]()\n"
                           "  %scale : float = prim::Constant[value=0.125]()\n"
                           "  %epsilon : float = prim::Constant[value=1e-05]()\n  " +
                           group.nodes + "\n  return (" + group.results + ")\n";
  const std::shared_ptr<Graph> graph = parse(text);
  if (form.groups != nullptr) {
    form_groups(*graph);
  }
  return std::move(*lower(graph, nullptr, nullptr, form));
}

template <typename Run>
double microseconds(const Run& run) {
  const auto start = Clock::now();
  run();
  return std::chrono::duration<double, std::micro>(Clock::now() - start).count();
}

void run_group(benchmark::State& state, const Group& group) {
  const c10::NoGradGuard no_grad;
  const int threads = at::get_num_threads();
  at::set_num_threads(1);
  const int64_t row = state.range(0);
  const auto kernel = plan_of(group, row, {.is_prepared = true, .groups = &blocking_kernels()});
  const auto ordinary = plan_of(group, row, {});
  torch::jit::Stack operands;
  for (const char kind : std::string_view(group.operands)) {
    operands.emplace_back(kind == 'm' ? at::randn({row, row}) : at::randn({row}));
  }
  const at::Tensor copy = at::empty({row, row});
  const auto call = [&](const Plan& plan) {
    return microseconds([&] {
      torch::jit::Stack stack = operands;
      run_plan(plan, stack, AutogradUse::kNone);
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
  state.counters["kernel_us"] = median(of_kernel);
  state.counters["operators_us"] = median(of_operators);
  state.counters["memcpy_us"] = median(of_memcpy);
  state.counters["ratio"] = median(of_operators) / median(of_kernel);
  at::set_num_threads(threads);
}

// gelu_gate/1024: matrices of 1024 by 1024
const bool are_registered = [] {
  const bool is_smoke = std::getenv("SCONCE_BENCH_SMOKE") != nullptr;
  for (const Group& group : kGroups) {
    for (const int64_t row : {32, 256, 1024, 4096}) {
      if (!is_smoke || row == 32) {
        benchmark::RegisterBenchmark(group.name, run_group, group)->Arg(row)->MinTime(is_smoke ? 0.001 : 0.3);
      }
    }
  }
  return true;
}();

}  // namespace
}  // namespace sconce
