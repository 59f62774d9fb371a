// Which operators of a plan are prepared, why others are not, and where local tensors lie.
#include "tests/support/graphs.h"

#include "lower/explain_plan.h"
#include "lower/lower.h"
#include "plan/run_plan.h"

#include <ATen/ATen.h>
#include <ATen/record_function.h>
#include <c10/core/GradMode.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>
#include <set>

namespace sconce {
namespace {

std::unique_ptr<Plan> explainable_plan(const std::string& text, LoweringOptions form = {.is_prepared = true}) {
  return std::move(*lower(testing::graph_of(text), nullptr, nullptr, form));
}

void call_plan(const Plan& plan, torch::jit::Stack arguments, AutogradUse autograd = AutogradUse::kNone) {
  run_plan(plan, arguments, autograd);
}

PlanExplanation explained(const Plan& plan) {
  PlanExplanation explanation;
  explain_plan(plan, explanation);
  return explanation;
}

using Found = std::pair<std::string, NotPrepared>;
std::map<Found, uint64_t> times_of(const Plan& plan) {
  std::map<Found, uint64_t> found;
  for (const NotPreparedExplanation& entry : explained(plan).not_prepared) {
    EXPECT_EQ(entry.node.empty(), entry.op.empty());
    EXPECT_STRNE(to_string(entry.reason), "unknown");
    found[{entry.op, entry.reason}] = entry.times;
  }
  return found;
}

TEST(ExplainPlan, GivesAReasonToEveryOperatorThatIsNotPrepared) {
  const auto plan = explainable_plan(R"(graph(%x : Tensor, %weight : Tensor?):
  %zero : int = prim::Constant[value=0]()
  %two : int = prim::Constant[value=2]()
  %false : bool = prim::Constant[value=0]()
  %none : NoneType = prim::Constant()
  %epsilon : float = prim::Constant[value=0.1]()
  %shape : int[] = prim::ListConstruct(%two)
  %a : Tensor = aten::neg(%x)
  %list : Tensor[] = prim::ListConstruct(%a, %x)
  %b : Tensor = aten::exp(%a)
  %c : Tensor = aten::cat(%list, %zero)
  %d : Tensor, %e : Tensor = aten::sort(%c, %zero, %false)
  %f : Tensor = aten::cumsum(%d, %zero, %none) # model.py:3:4
  %g : Tensor = aten::layer_norm(%b, %shape, %weight, %none, %epsilon, %false)
  %h : Tensor = aten::select(%b, %zero, %zero)
  return (%f, %g, %h, %e)
)");
  const PlanExplanation explanation = explained(*plan);
  EXPECT_EQ(explanation.prepared_steps, 3U) << "neg, exp, and the norm, whose weight may be None";
  EXPECT_EQ(explanation.ordinary_steps, 4U);
  EXPECT_EQ(times_of(*plan), (std::map<Found, uint64_t>{{{"aten::cat", NotPrepared::kListArgument}, 0},
                                                        {{"aten::sort", NotPrepared::kSeveralResults}, 0},
                                                        {{"aten::cumsum", NotPrepared::kNoKernel}, 0},
                                                        {{"aten::select", NotPrepared::kViewEscapes}, 0}}));
  for (const NotPreparedExplanation& entry : explanation.not_prepared) {
    EXPECT_EQ(entry.steps, 1U);
    EXPECT_EQ(entry.source, entry.op == "aten::cumsum" ? "model.py:3:4" : "") << entry.op;
  }
}

// LibTorch rejects operands that overlap by their storages, and a prepared view has one of its own.
TEST(ExplainPlan, TellsViewsBesideAWriteFromThoseThatEscape) {
  const auto plan = explainable_plan(R"(graph(%x : Tensor):
  %zero : int = prim::Constant[value=0]()
  %one : int = prim::Constant[value=1]()
  %y : Tensor = aten::neg(%x)
  %t : Tensor = aten::transpose(%y, %zero, %one)
  %w : Tensor = aten::add_(%y, %t, %one)
  %z : Tensor = aten::exp(%w)
  %s : Tensor = aten::select(%z, %zero, %zero)
  return (%s)
)");
  EXPECT_EQ(times_of(*plan), (std::map<Found, uint64_t>{{{"aten::transpose", NotPrepared::kViewBesideWrite}, 0},
                                                        {{"aten::add_", NotPrepared::kNoKernel}, 0},
                                                        {{"aten::select", NotPrepared::kViewEscapes}, 0}}));
}

const char* const kGelu = R"(graph(%x : Tensor):
  %how : str = prim::Constant[value="none"]()
  %a : Tensor = aten::neg(%x)
  %b : Tensor = aten::gelu(%a, %how)
  return (%b)
)";

TEST(ExplainPlan, CountsWhatKernelsRefuseInRuns) {
  const at::NoGradGuard no_grad;
  const auto exact = explainable_plan(kGelu, {.is_prepared = true, .limits = {.is_exact = true}});
  for (int i = 0; i < 5; ++i) {
    call_plan(*exact, {at::randn({3})});
  }
  EXPECT_EQ(times_of(*exact), (std::map<Found, uint64_t>{{{"aten::gelu", NotPrepared::kOperandForm}, 1}}))
      << "refused once, for all runs of this form";

  const auto sparse = explainable_plan("graph(%x : Tensor):\n  %a : Tensor = aten::neg(%x)\n  return (%a)\n");
  for (int i = 0; i < 30; ++i) {
    call_plan(*sparse, {at::eye(3).to_sparse()});
  }
  const auto found = times_of(*sparse);
  EXPECT_GT(found.at({"aten::neg", NotPrepared::kOperandKind}), 1U);
  EXPECT_EQ(found.at({"aten::neg", NotPrepared::kGaveUp}), 1U);
}

TEST(ExplainPlan, TellsWhichRunsHadOrdinaryStepsOnly) {
  const at::NoGradGuard no_grad;
  const auto plan = explainable_plan(kGelu);
  call_plan(*plan, {at::randn({3})});
  EXPECT_TRUE(times_of(*plan).empty());
  call_plan(*plan, {at::randn({3})}, AutogradUse::kAll);
  EXPECT_EQ(times_of(*plan), (std::map<Found, uint64_t>{{{"", NotPrepared::kGradients}, 0}}));
  const auto handle = at::addGlobalCallback(at::RecordFunctionCallback(
      [](const at::RecordFunction& /*function*/) { return std::unique_ptr<at::ObserverContext>(); }));
  call_plan(*plan, {at::randn({3})});
  at::removeCallback(handle);
  EXPECT_EQ(times_of(*plan).count({"", NotPrepared::kObserved}), 1U);

  const auto may_record = explainable_plan(R"(graph(%x : Tensor, %flag : bool):
  %y : Tensor = aten::tanh(%x)
  %z : Tensor = aten::requires_grad_(%x, %flag)
  return (%y, %z)
)");
  ASSERT_TRUE(may_record->checks_each_step());
  call_plan(*may_record, {at::randn({3}), false}, AutogradUse::kPerStep);
  EXPECT_EQ(times_of(*may_record).count({"aten::tanh", NotPrepared::kRequiresGrad}), 0U);
  const at::AutoGradMode records(true);
  call_plan(*may_record, {at::randn({3}).requires_grad_(), false}, AutogradUse::kPerStep);
  EXPECT_EQ(times_of(*may_record).count({"aten::tanh", NotPrepared::kRequiresGrad}), 1U);

  const auto ordinary = explainable_plan(kGelu, LoweringOptions{});
  EXPECT_EQ(times_of(*ordinary), (std::map<Found, uint64_t>{{{"", NotPrepared::kOptimizationOff}, 0}}));
  EXPECT_EQ(explained(*ordinary).not_prepared.front().steps, 2U);
}

TEST(ExplainPlan, ShowsTheMemoryOfTheNewestLayout) {
  const at::NoGradGuard no_grad;
  const auto plan = explainable_plan(R"(graph(%x : Tensor, %branch : bool):
  %zero : int = prim::Constant[value=0]()
  %a : Tensor = aten::neg(%x)
  %row : Tensor = aten::select(%a, %zero, %zero)
  %b : Tensor = aten::exp(%row) # model.py:7:1
  %c : Tensor = prim::If(%branch)
    block0():
      %d : Tensor = aten::tanh(%b)
      %e : Tensor = aten::neg(%d)
      -> (%e)
    block1():
      -> (%b)
  %f : Tensor = aten::neg(%c)
  return (%f)
)");
  EXPECT_FALSE(explained(*plan).memory.has_layout);
  call_plan(*plan, {at::randn({4, 16}), false});
  const MemoryExplanation memory = explained(*plan).memory;
  ASSERT_TRUE(memory.has_layout);
  EXPECT_EQ(memory.arena_bytes, plan->memory().layout()->bytes);
  EXPECT_GE(memory.arena_bytes, memory.lower_bound);
  EXPECT_EQ(memory.positions, 9U) << "eight nodes, and the end of the branch";
  std::map<std::string, SlotExplanation> slots;  // by operator
  for (const SlotExplanation& slot : memory.slots) {
    slots[slot.node.substr(0, slot.node.find(' '))] = slot;
    EXPECT_LE(slot.first, slot.last);
    EXPECT_LE(slot.offset + slot.bytes, memory.arena_bytes);
  }
  EXPECT_EQ(slots.at("%a").bytes, 4U * 16 * sizeof(float));
  EXPECT_TRUE(slots.at("%row").is_view);
  EXPECT_EQ(slots.at("%row").bytes, 0U);
  EXPECT_EQ(slots.at("%b").source, "model.py:7:1");
  EXPECT_EQ(slots.at("%d").bytes, 0U) << "no run needed it";
  EXPECT_EQ(memory.without_room, slots.contains("%e") ? 2U : 1U);
  call_plan(*plan, {at::randn({4, 16}), true});
  EXPECT_EQ(explained(*plan).memory.without_room, 0U);
}

TEST(ExplainPlan, TellsWhichStepsARecordingOnTheDeviceCannotHold) {
  const auto plan = explainable_plan(
      "graph(%x : Float(2, device=cuda:0), %h : Float(2, device=cpu), %u : Tensor):\n"
      "  %cpu : Device = prim::Constant[value=\"cpu\"]()\n  %f : int = prim::Constant[value=6]()\n"
      "  %no : bool = prim::Constant[value=0]()\n  %none : NoneType = prim::Constant()\n"
      "  %a : Float(2, device=cuda:0) = aten::relu(%x)\n"
      "  %b : Float(2, device=cpu) = aten::to(%a, %cpu, %f, %no, %no, %none)\n"
      "  %c : Float(2, device=cpu) = aten::sigmoid(%h)\n"
      "  %d : Tensor = aten::tanh(%u)\n"
      "  return (%a, %b, %c, %d)\n");
  const TraitsExplanation traits = explained(*plan).traits;
  EXPECT_THAT(traits.devices, ::testing::ElementsAre("cuda:0", "cpu"));
  std::map<std::string, NotRecordable> found;
  for (const NotRecordableExplanation& entry : traits.not_recordable) {
    found.emplace(entry.op, entry.reason);
    EXPECT_STRNE(to_string(entry.reason), "unknown");
  }
  EXPECT_EQ(found, (std::map<std::string, NotRecordable>{{"aten::to", NotRecordable::kSeveralDevices},
                                                         {"aten::sigmoid", NotRecordable::kOtherDevice},
                                                         {"aten::tanh", NotRecordable::kUnknownDevice}}));
}

}  // namespace
}  // namespace sconce
