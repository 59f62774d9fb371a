// The pages of src/fusion, src/plan and src/trace carry one example each; their blocks are what the code gives.
#include "tests/docs/tagged_page.h"
#include "tests/support/graphs.h"

#include "executor/stages.h"
#include "fusion/cpu/kernel_cache.h"
#include "fusion/group/form_groups.h"
#include "fusion/kernels_on_device.h"
#include "fusion/program/schedule.h"
#include "ir/text/print.h"
#include "lower/lower.h"
#include "passes/simplify/propagate_facts.h"
#include "plan/run_plan.h"
#include "trace/tracer.h"

#include <ATen/ATen.h>
#include <c10/core/GradMode.h>
#include <gtest/gtest.h>

#include <map>
#include <memory>
#include <regex>
#include <string>
#include <vector>

namespace sconce {
namespace {

using testing::text_of;

std::unique_ptr<Graph> optimized_page_graph(const std::string& source) {
  std::unique_ptr<Graph> graph = testing::graph_of_source(source);
  PassRunner runner;
  run_stage(Stage::kRequired, graph, runner);
  run_stage(Stage::kOptimize, graph, runner);
  return graph;
}

void set_sizes(Graph& graph, const std::map<std::string, std::vector<int64_t>>& sizes_by_name) {
  for (const auto& [name, sizes] : sizes_by_name) {
    TensorFacts facts;
    facts.dtype = at::kFloat;
    facts.device = at::kCPU;
    facts.sizes.emplace();
    for (const int64_t size : sizes) {
      facts.sizes->push_back(Dim::known(size));
    }
    testing::find_value(graph, name)->set_facts(std::move(facts));
  }
  propagate_facts(graph, InputAssumptions{.grad_mode = false});
}

// One line for each pass: the instructions that it can be the first to compute, and what it keeps.
std::string text_of_schedule(const KernelProgram& program) {
  const Schedule schedule = schedule_of(program);
  std::string text;
  for (uint32_t pass = 0; pass < schedule.passes; ++pass) {
    text += "pass " + std::to_string(pass) + ":";
    for (size_t i = 0; i < program.code.size(); ++i) {
      // A value of the row is known after the pass that reduces it.
      const bool is_of_next = is_reduction(program.code[i].op);
      if (schedule.stage[i] == pass + (is_of_next ? 1 : 0)) {
        text += " %" + std::to_string(i) + " " + name_of(program.code[i].op);
      }
    }
    text += "\n";
  }
  for (const RowBuffer& buffer : schedule.buffers) {
    text += "kept: %" + std::to_string(buffer.value) + (buffer.output ? ", in the memory of the output" : "") + "\n";
  }
  return text;
}

TEST(RoomsPages, FusionFollowsAGroupToItsSchedule) {
  testing::TaggedPage page("src/fusion/README.md");
  std::map<std::string, std::string> texts;
  const std::unique_ptr<Graph> graph = optimized_page_graph(page.block("python"));
  set_sizes(*graph, {{"x.1", {4, 100}}, {"w.1", {100}}, {"b.1", {100}}});
  ASSERT_TRUE(form_groups(*graph));
  texts["ir group"] = text_of(*graph);

  const auto kernels = kernels_on(c10::kCPU, /*is_blocking=*/true);
  if (!kernels) {
    GTEST_SKIP() << kernels.refusal().reason;
  }
  const auto plan = lower(graph->clone(), nullptr, nullptr, {.is_prepared = true, .groups = *kernels});
  ASSERT_TRUE(plan);
  const at::NoGradGuard no_grad;
  for (int call = 0; call < 2; ++call) {
    torch::jit::Stack stack{at::randn({4, 100}), at::randn({100}), at::randn({100})};
    run_plan(**plan, stack, AutogradUse::kNone);
  }
  for (const auto& kernel : KernelCache::instance().kernels()) {
    for (const std::string& group : kernel->groups()) {
      if (group == "mul add softmax") {
        texts["text program"] = kernel->program().text();
        texts["text schedule"] = text_of_schedule(kernel->program());
      }
    }
  }
  page.expect_blocks(texts);
}

TEST(RoomsPages, PlanShowsItsSteps) {
  testing::TaggedPage page("src/plan/README.md");
  const auto plan = lower(optimized_page_graph(page.block("python")), nullptr, nullptr, {.is_prepared = true});
  ASSERT_TRUE(plan);
  page.expect_blocks({{"text plan", std::regex_replace((*plan)->text(), std::regex("  #[^\n]*"), "")}});
}

at::Tensor traced_loss(const at::Tensor& x, const at::Tensor& w) {
  const at::Tensor y = at::relu(x.mm(w));
  return at::mse_loss(y, at::zeros_like(y));
}

TEST(RoomsPages, TraceShowsTheOperatorsOfAFunction) {
  testing::TaggedPage page("src/trace/README.md");
  const at::NoGradGuard no_grad;
  Tracer tracer;
  const at::Tensor x = tracer.add_argument(at::randn({2, 3}));
  const at::Tensor w = tracer.add_argument(at::randn({3, 4}));
  {
    const TracingScope scope(tracer);
    tracer.add_output(traced_loss(x, w));
  }
  ASSERT_FALSE(tracer.refusal());
  page.expect_blocks({{"ir trace", text_of(*tracer.finish())}});
}

}  // namespace
}  // namespace sconce
