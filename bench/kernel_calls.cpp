// What steps of a plan cost beside the work of their kernels, on tensors of a few elements and one thread. Each figure is
// the difference of two plans that take turns, so that what the rest of a call costs counts in neither; the least of all
// rounds is taken. Counters, in nanoseconds:
//   number_step     a step that adds two numbers: what the plainest step costs on this machine
//   kernel_call     a kernel of one operator, as a step: plans with more and with fewer such steps
//   fused_operator  an operator within a kernel: kernels of more and of fewer operators
//   mixed_operator  an operator of a chain of layer norms, products, pointwise operators and joins: no difference, but a
//   call
// SCONCE_BENCH_SMOKE: few rounds.
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
#include <limits>
#include <string>

namespace sconce {
namespace {

using Clock = std::chrono::steady_clock;

std::unique_ptr<Plan> plan_of(const std::string& nodes, const std::string& result) {
  const std::string text =
      "graph(%x : Tensor, %i : int, %weight : Tensor, %bias : Tensor):\n"
      "  %one : int = prim::Constant[value=1]()\n  %last : int = prim::Constant[value=-1]()\n"
      "  %none : NoneType = prim::Constant()\n  %half : float = prim::Constant[value=0.5]()\n"
      "  %row : int[] = prim::Constant[value=[8]]()\n  %epsilon : float = prim::Constant[value=1e-05]()\n"
      "  %yes : bool = prim::Constant[value=1]()\n  %zero : int = prim::Constant[value=0]()\n"
      "  %four : int = prim::Constant[value=4]()\n  %eight : int = prim::Constant[value=8]()\n" +
      nodes + "  return (" + result + ")\n";
  const std::shared_ptr<Graph> graph = parse(text);
  form_groups(*graph);
  return std::move(*lower(graph, nullptr, nullptr, {.is_prepared = true, .groups = &blocking_kernels()}));
}

std::string named(const char* prefix, int i) { return prefix + std::to_string(i); }

// Each operator has a kernel of its own, and each is followed by a sum of numbers.
std::unique_ptr<Plan> plan_of_steps(int count, bool with_kernels) {
  std::string nodes;
  std::string x = "%x";
  std::string i = "%i";
  for (int k = 0; k < count; ++k) {
    nodes += "  " + named("%i", k) + " : int = aten::add(" + i + ", %one)\n";
    i = named("%i", k);
    if (with_kernels) {
      nodes += "  " + named("%x", k) + " : Tensor = sconce::kernel()\n    block0():\n      " + named("%y", k) +
               " : Tensor = aten::neg(" + x + ")\n      -> (" + named("%y", k) + ")\n";
      x = named("%x", k);
    }
  }
  return plan_of(nodes, with_kernels ? x + ", " + i : i);
}

std::unique_ptr<Plan> plan_of_one_kernel(int count) {
  constexpr std::array kOperators = {"aten::mul(X, %half)", "aten::add(X, %x, %one)", "aten::neg(X)", "aten::relu(X)"};
  std::string nodes;
  std::string x = "%x";
  for (int k = 0; k < count; ++k) {
    std::string call = kOperators[static_cast<size_t>(k) % kOperators.size()];
    nodes += "  " + named("%x", k) + " : Tensor = " + call.replace(call.find('X'), 1, x) + "\n";
    x = named("%x", k);
  }
  return plan_of(nodes, x);
}

constexpr int kMixed = 100;
std::unique_ptr<Plan> plan_of_mixed() {
  constexpr std::array kOperators = {"aten::linear(X, %weight, %bias)",
                                     "aten::relu(X)",
                                     "aten::add(X, %x, %one)",
                                     "aten::layer_norm(X, %row, %bias, %bias, %epsilon, %yes)",
                                     "aten::matmul(X, %weight)",
                                     "aten::softmax(X, %last, %none)",
                                     "aten::transpose(X, %zero, %one)",
                                     "aten::transpose(X, %zero, %one)",
                                     "aten::mul(X, %x)",
                                     "aten::tanh(X)"};
  std::string nodes;
  std::string x = "%x";
  for (int k = 0; k < kMixed; ++k) {
    std::string call = kOperators[static_cast<size_t>(k) % kOperators.size()];
    nodes += "  " + named("%x", k) + " : Tensor = " + call.replace(call.find('X'), 1, x) + "\n";
    x = named("%x", k);
  }
  return plan_of(nodes, x);
}

double nanoseconds(const Plan& plan, const torch::jit::Stack& arguments) {
  constexpr int kCalls = 50;
  const auto start = Clock::now();
  for (int i = 0; i < kCalls; ++i) {
    torch::jit::Stack stack = arguments;
    run_plan(plan, stack, AutogradUse::kNone);
    benchmark::DoNotOptimize(stack);
  }
  return std::chrono::duration<double, std::nano>(Clock::now() - start).count() / kCalls;
}

void run_kernel_calls(benchmark::State& state) {
  const c10::NoGradGuard no_grad;
  at::set_num_threads(1);
  constexpr int kMany = 40;
  constexpr int kFew = 8;
  const std::array<std::unique_ptr<Plan>, 7> plans = {plan_of_steps(kMany, true),
                                                      plan_of_steps(kFew, true),
                                                      plan_of_steps(kMany, false),
                                                      plan_of_steps(kFew, false),
                                                      plan_of_one_kernel(60),
                                                      plan_of_one_kernel(20),
                                                      plan_of_mixed()};
  const torch::jit::Stack arguments = {at::randn({1, 8}), 3, at::randn({8, 8}) / 3, at::randn({8})};
  const torch::jit::Stack wide = {at::randn({1, 16}), 3, at::Tensor(), at::Tensor()};  // a whole vector
  std::array<double, plans.size()> least = {};
  least.fill(std::numeric_limits<double>::infinity());
  for (auto _ : state) {
    for (size_t i = 0; i < plans.size(); ++i) {
      least[i] = std::min(least[i], nanoseconds(*plans[i], i < 4 ? wide : arguments));
    }
  }
  const double number_step = (least[2] - least[3]) / (kMany - kFew);
  state.counters["number_step"] = number_step;
  state.counters["kernel_call"] = (least[0] - least[1]) / (kMany - kFew) - number_step;
  state.counters["fused_operator"] = (least[4] - least[5]) / 40;
  state.counters["mixed_operator"] = least[6] / kMixed;
}
const int iterations = std::getenv("SCONCE_BENCH_SMOKE") != nullptr ? 3 : 2000;
BENCHMARK(run_kernel_calls)->Unit(benchmark::kMillisecond)->Iterations(iterations);

}  // namespace
}  // namespace sconce
