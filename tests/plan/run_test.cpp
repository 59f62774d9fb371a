// Plans: what they compute, when they free memory, what errors leave behind, how they treat autograd.
#include "tests/support/graphs.h"
#include "tests/support/work_counter.h"

#include "executor/compile.h"
#include "ir/text/parse.h"
#include "lower/lower.h"
#include "plan/run_plan.h"

#include <ATen/ATen.h>
#include <c10/core/InferenceMode.h>
#include <gmock/gmock.h>
#include <torch/csrc/jit/runtime/jit_exception.h>

namespace sconce {
namespace {

using testing::agree;
using testing::graph_of;
using ::testing::HasSubstr;
using testing::message_of;
using testing::run;
using Values = std::vector<c10::IValue>;

// ---- control flow ---------------------------------------------------------------------------------------------------

TEST(Plan, RunsTheBranchThatTheConditionChooses) {
  const char* const text =
      "graph(%a : Tensor, %flag : bool):\n"
      "  %x : Tensor, %n : int = prim::If(%flag)\n"
      "    block0():\n"
      "      %one : int = prim::Constant[value=1]()\n"
      "      %y : Tensor = aten::neg(%a)\n"
      "      -> (%y, %one)\n"
      "    block1():\n"
      "      %two : int = prim::Constant[value=2]()\n"
      "      -> (%a, %two)\n"
      "  return (%x, %n)\n";
  const at::Tensor a = at::ones({2});
  EXPECT_TRUE(agree(run(text, {a, true}), {-a, 1}));
  EXPECT_TRUE(agree(run(text, {a, false}), {a, 2}));
}

const char* const kSwap =
    "graph(%a : Tensor, %b : Tensor, %n : int, %go : bool):\n"
    "  %yes : bool = prim::Constant[value=1]()\n"
    "  %x : Tensor, %y : Tensor = prim::Loop(%n, %go, %a, %b)\n"
    "    block0(%i : int, %p : Tensor, %q : Tensor):\n"
    "      -> (%yes, %q, %p)\n"
    "  return (%x, %y)\n";

TEST(Plan, SwapsCarriedValues) {
  const at::Tensor a = at::ones({1});
  const at::Tensor b = at::zeros({1});
  for (int64_t n = 0; n < 5; ++n) {
    const Values out = run(kSwap, {a, b, n, true});
    EXPECT_TRUE(out[0].toTensor().is_same(n % 2 == 0 ? a : b)) << n;
    EXPECT_TRUE(out[1].toTensor().is_same(n % 2 == 0 ? b : a)) << n;
  }
}

TEST(Plan, ALoopOfNoTripsHandsItsInitialValuesOn) {
  const at::Tensor a = at::ones({1});
  const at::Tensor b = at::zeros({1});
  for (const auto& [n, go] : std::vector<std::pair<int64_t, bool>>{{0, true}, {-3, true}, {5, false}}) {
    const Values out = run(kSwap, {a, b, n, go});
    EXPECT_TRUE(out[0].toTensor().is_same(a));
    EXPECT_TRUE(out[1].toTensor().is_same(b));
  }
}

TEST(Plan, OneValueMayBeCarriedTwice) {
  const at::Tensor a = at::ones({1});
  const Values out = run(kSwap, {a, a, 3, true});
  EXPECT_TRUE(out[0].toTensor().is_same(a));
  EXPECT_TRUE(out[1].toTensor().is_same(a));
}

// The function, run by sconce and by LibTorch's own interpreter.
void expect_as_in_torchscript(const std::string& body, const std::vector<Values>& calls) {
  auto module = testing::module_of("def forward" + body);
  const auto graph = testing::graph_of_source("def f" + std::string(body).replace(body.find("self, "), 6, ""));
  for (const Values& arguments : calls) {
    auto copy = arguments;
    EXPECT_TRUE(agree(run(*graph, arguments).at(0), module.forward(copy))) << body;
  }
}

TEST(Plan, RunsNestedLoopsWithValuesOfEveryLevel) {
  expect_as_in_torchscript(R"((self, x: Tensor, n: int) -> Tuple[Tensor, int]:
    total = 0
    outer = x * 2
    for i in range(n):
        inner = outer + i
        for j in range(i):
            if (i + j) % 2 == 0:
                x = x + inner * j
            else:
                x = x - outer
            total += i * j
        while total > 100:
            total = total // 2
    return x, total
)",
                           {{at::ones({2}), 0}, {at::ones({2}), 1}, {at::ones({2}), 6}, {at::ones({2}), 12}});
}

TEST(Plan, RunsBreakContinueAndEarlyReturn) {
  expect_as_in_torchscript(R"((self, x: Tensor, n: int) -> Tensor:
    for i in range(100):
        if i == n:
            return x
        if i % 3 == 0:
            continue
        x = x + i
        if i > 20:
            break
    return -x
)",
                           {{at::ones({2}), 0}, {at::ones({2}), 5}, {at::ones({2}), 50}});
}

TEST(Plan, RunsListsTuplesDictsStringsAndNone) {
  expect_as_in_torchscript(R"((self, x: Tensor, n: int, y: Optional[Tensor]) -> Tuple[List[Tensor], int, str, List[int]]:
    parts = [x, x + 1]
    parts.append(x * 2)
    if y is not None:
        parts[0] = y
    d: Dict[str, int] = {"a": n, "b": 2}
    d["c"] = n * n
    text = "n is {}".format(n)
    pair = (n, (x, text))
    first, second = pair
    inner, name = second
    a, b, c = parts
    parts.append(a + b + c + inner)
    squares = [i * i for i in range(n)]
    return parts[1:], d["a"] + d["c"] + len(d) + first, name, squares
)",
                           {{at::ones({2}), 3, at::zeros({2})}, {at::ones({2}), 0, c10::IValue()}});
}

TEST(Plan, RunsInPlaceOperatorsOnViews) {
  expect_as_in_torchscript(R"((self, x: Tensor, n: int) -> Tensor:
    y = x.clone()
    row = y[0]
    row.add_(n)
    y[1:, 0] = 7
    y.t_()
    return y
)",
                           {{at::arange(6.0).reshape({2, 3}), 3}});
}

TEST(Plan, BuildsEachTupleTypeAsItsTypeSays) {
  const Values out =
      run("graph(%a : Tensor, %n : int):\n"
          "  %t : (Tensor, int) = prim::TupleConstruct(%a, %n)\n"
          "  %i : int = prim::Constant[value=-1]()\n"
          "  %last : int = prim::TupleIndex(%t, %i)\n"
          "  %s : (int) = prim::TupleSlice[beg=1, end=2](%t)\n"
          "  return (%last, %s)\n",
          {at::ones({1}), 7});
  EXPECT_EQ(out[0].toInt(), 7);
  EXPECT_EQ(out[1].toTupleRef().elements()[0].toInt(), 7);
}

TEST(Plan, UnpackingTheWrongNumberOfElementsIsAnError) {
  const char* const text = "graph(%l : Tensor[]):\n  %a : Tensor, %b : Tensor = prim::ListUnpack(%l)\n  return (%a)\n";
  EXPECT_THAT(message_of([&] { run(text, {c10::List<at::Tensor>({at::ones({1})})}); }),
              HasSubstr("Expected 2 elements in a list but found 1"));
}

TEST(Plan, RefusesNodeKindsItCannotRunWithTheNode) {
  const std::shared_ptr<Graph> graph = parse(
      "graph(%g : Tensor):\n  %r : Tensor = prim::GradOf[name=\"f\"](%g)\n    block0():\n      -> (%g)\n  return (%r)\n");
  const auto plan = lower(graph);
  ASSERT_FALSE(plan);
  EXPECT_THAT(plan.refusal().reason, HasSubstr("prim::GradOf is not supported"));
  EXPECT_THAT(plan.refusal().node, HasSubstr("prim::GradOf"));
}

// ---- memory ---------------------------------------------------------------------------------------------------------

// A tensor that says when its memory goes.
at::Tensor watched(bool* freed, int64_t size = 4) {
  *freed = false;
  auto* memory = new float[static_cast<size_t>(size)]();
  return at::from_blob(memory, {size}, [=](void*) {
    delete[] memory;
    *freed = true;
  });
}

// `testing::check_freed(flag)` would need a custom operator; a graph tells by what a deleter saw before it raised.
TEST(Plan, FreesAnArgumentAtItsLastUseAndNotAtTheEnd) {
  const char* const text =
      "graph(%a : Tensor, %s : str, %none : NoneType):\n"
      "  %b : Tensor = aten::neg(%a)\n"
      "  %c : Tensor = aten::tanh(%b)\n"
      "  prim::RaiseException(%s, %none)\n"
      "  return (%c)\n";
  bool freed = false;
  bool freed_when_raised = false;
  GraphExecutor executor(graph_of(text), "f", Options{});
  Values stack = {watched(&freed), "stop", c10::IValue()};
  try {
    executor.run(stack);
    FAIL() << "nothing was raised";
  } catch (const std::exception&) {
    freed_when_raised = freed;
  }
  EXPECT_TRUE(freed_when_raised);
}

// While the plan runs, `use_count` tells how many hold the tensor: in-place operators of LibTorch see the same.
size_t drops_in(const Plan& plan) {
  size_t drops = 0;
  for (const Plan::PlannedStep& planned : plan.steps()) {
    drops += planned.step->describe().starts_with("drop") ? 1 : 0;
  }
  return drops;
}

TEST(Plan, MarksTheLastUseOfEveryValueAndNoOther) {
  auto compiled =
      compile_method(graph_of("graph(%a : Tensor, %b : Tensor):\n"
                              "  %c : Tensor = aten::mul(%a, %b)\n"
                              "  %d : Tensor = aten::mul(%c, %c)\n"
                              "  %e : Tensor = aten::mul(%d, %a)\n"
                              "  return (%e, %b)\n"));
  ASSERT_TRUE(compiled);
  // %0 holds the zero of loops, %1 and %2 are the inputs.
  EXPECT_EQ(compiled->plan->text(),
            "    0  aten::mul %1 %2 -> %3\n"
            "    1  aten::mul %3 %3! -> %4\n"
            "    2  aten::mul %4! %1! -> %3\n"
            "    3  return %3! %2!\n");
  EXPECT_EQ(drops_in(*compiled->plan), 0);
}

TEST(Plan, AChainNeedsNoMoreRegistersTheLongerItIs) {
  const auto registers_of = [](int length) {
    std::string text = "graph(%x0 : Tensor):\n";
    for (int i = 0; i < length; ++i) {
      text += "  %x" + std::to_string(i + 1) + " : Tensor = aten::neg(%x" + std::to_string(i) + ")\n";
    }
    return compile_method(graph_of(text + "  return (%x" + std::to_string(length) + ")\n"))->plan->register_count();
  };
  EXPECT_EQ(registers_of(3), registers_of(100));
}

// Each branch may use the registers that the other one left free, but none that holds a value used after both.
TEST(Plan, BranchesShareTheirRegisters) {
  const char* const text =
      "graph(%a : Tensor, %kept : Tensor, %flag : bool):\n"
      "  %x : Tensor = prim::If(%flag)\n"
      "    block0():\n"
      "      %p : Tensor = aten::neg(%a)\n"
      "      %q : Tensor = aten::exp(%p)\n"
      "      %r : Tensor = aten::mul(%p, %q)\n"
      "      -> (%r)\n"
      "    block1():\n"
      "      %s : Tensor = aten::exp(%a)\n"
      "      %t : Tensor = aten::neg(%s)\n"
      "      %u : Tensor = aten::mul(%s, %t)\n"
      "      -> (%u)\n"
      "  %y : Tensor = aten::mul(%x, %kept)\n"
      "  return (%y)\n";
  EXPECT_LE(compile_method(graph_of(text))->plan->register_count(), 7U);  // 0, inputs, x, two temporaries
  const at::Tensor a = at::rand({3});
  const at::Tensor kept = at::rand({3});
  EXPECT_TRUE(agree(run(text, {a, kept, true}), {(-a) * (-a).exp() * kept}));
  EXPECT_TRUE(agree(run(text, {a, kept, false}), {a.exp() * -a.exp() * kept}));
}

TEST(Plan, DropsAnUnusedResultAtOnce) {
  auto compiled =
      compile_method(graph_of("graph(%a : Tensor):\n"
                              "  %b : Tensor = aten::neg_(%a)\n"
                              "  return (%a)\n"));
  EXPECT_EQ(drops_in(*compiled->plan), 1);
}

TEST(Plan, RaisesWithTheAuthorsMessageAndClass) {
  const char* const text =
      "graph(%message : str, %class : str?):\n"
      "  prim::RaiseException(%message, %class)\n"
      "  return ()\n";
  for (const c10::IValue& python_class : {c10::IValue("builtins.ValueError"), c10::IValue()}) {
    try {
      run(text, {"too large", python_class});
      FAIL() << "nothing was raised";
    } catch (const torch::jit::JITException& raised) {
      EXPECT_EQ(raised.getOriginalMsg(), "too large");
      EXPECT_THAT(raised.what(), ::testing::EndsWith(python_class.isNone() ? "\nRuntimeError: too large\n"
                                                                           : "\nbuiltins.ValueError: too large\n"));
      EXPECT_EQ(raised.getPythonClassName(), python_class.toOptional<std::string>());
    }
  }
}

TEST(Plan, FreesInABranchWhatOnlyTheOtherBranchUses) {
  const char* const text =
      "graph(%a : Tensor, %flag : bool, %s : str, %none : NoneType):\n"
      "  %r : Tensor = prim::If(%flag)\n"
      "    block0():\n"
      "      %x : Tensor = aten::neg(%a)\n"
      "      -> (%x)\n"
      "    block1():\n"
      "      prim::RaiseException(%s, %none)\n"
      "      %y : Tensor = prim::Uninitialized()\n"
      "      -> (%y)\n"
      "  return (%r)\n";
  bool freed = false;
  bool freed_when_raised = false;
  try {
    run(text, {watched(&freed), false, "stop", c10::IValue()});
  } catch (const std::exception&) {
    freed_when_raised = freed;
  }
  EXPECT_TRUE(freed_when_raised);
}

TEST(Plan, KeepsInALoopWhatTheNextIterationUses) {
  const at::Tensor a = at::ones({2});
  const Values out =
      run("graph(%a : Tensor, %n : int):\n"
          "  %yes : bool = prim::Constant[value=1]()\n"
          "  %one : int = prim::Constant[value=1]()\n"
          "  %k : Tensor = aten::neg(%a)\n"
          "  %r : Tensor = prim::Loop(%n, %yes, %a)\n"
          "    block0(%i : int, %v : Tensor):\n"
          "      %w : Tensor = aten::add(%v, %k, %one)\n"
          "      -> (%yes, %w)\n"
          "  return (%r)\n",
          {a, 3});
  EXPECT_TRUE(agree(out.at(0), a * -2));
}

TEST(Plan, ItsFrameHoldsOnlyConstantsBetweenRuns) {
  bool freed = false;
  GraphExecutor executor(graph_of("graph(%a : Tensor, %b : Tensor):\n  %c : Tensor = aten::mul(%a, %b)\n  return (%c)\n"),
                         "f", Options{});
  {
    Values stack = {watched(&freed), at::ones({7})};
    EXPECT_THROW(executor.run(stack), c10::Error);
  }
  EXPECT_TRUE(freed) << "an error drops the arguments, too";
}

TEST(Plan, ConstantsSurviveEveryRun) {
  Graph graph;
  Value* a = graph.add_input("a", c10::TensorType::get());
  Value* weight = graph.insert_constant(at::full({2}, 3.0), graph.body().return_node());
  graph.add_output(weight);
  graph.add_output(a);
  GraphExecutor executor(graph.clone(), "f", Options{});
  for (int i = 0; i < 3; ++i) {
    Values stack = {at::ones({2})};
    executor.run(stack);
    EXPECT_TRUE(agree(stack.at(0), at::full({2}, 3.0)));
  }
}

// ---- errors ---------------------------------------------------------------------------------------------------------

TEST(Plan, AnErrorDeepInALoopNamesItsNodeAndTheNextRunIsRight) {
  GraphExecutor executor(graph_of("graph(%l : Tensor[], %n : int):\n"
                                  "  %yes : bool = prim::Constant[value=1]()\n"
                                  "  %zero : int = prim::Constant[value=0]()\n"
                                  "  %first : Tensor = aten::__getitem__(%l, %zero)\n"
                                  "  %r : Tensor = prim::Loop(%n, %yes, %first)\n"
                                  "    block0(%i : int, %v : Tensor):\n"
                                  "      %e : Tensor = aten::__getitem__(%l, %i) # model.py:7:3\n"
                                  "      %w : Tensor = aten::mul(%v, %e)\n"
                                  "      -> (%yes, %w)\n"
                                  "  return (%r)\n"),
                         "f", Options{});
  const c10::List<at::Tensor> list({at::full({1}, 2.0), at::full({1}, 3.0)});
  for (int i = 0; i < 2; ++i) {
    Values bad = {list, 3};
    const std::string message = message_of([&] { executor.run(bad); });
    EXPECT_THAT(message, HasSubstr("list index out of range"));
    EXPECT_THAT(message, HasSubstr("aten::__getitem__(%l, %i)"));
    EXPECT_THAT(message, HasSubstr("model.py:7:3"));
    Values good = {list, 2};
    executor.run(good);
    EXPECT_TRUE(agree(good.at(0), at::full({1}, 12.0)));
  }
}

// ---- autograd (rule R4) ---------------------------------------------------------------------------------------------

TEST(Plan, InPlaceStepsBumpTheVersionAlsoWhenNothingRequiresGrad) {
  const at::Tensor a = at::ones({2});
  const auto before = a._version();
  run("graph(%a : Tensor):\n  %b : Tensor = aten::neg_(%a)\n  %c : Tensor = aten::neg_(%b)\n  return (%c)\n", {a});
  EXPECT_EQ(a._version(), before + 2);
}

TEST(Plan, AnInPlaceStepOnASavedTensorIsCaughtByBackward) {
  const at::Tensor a = at::ones({2}).requires_grad_(true);
  const Values out =
      run("graph(%a : Tensor):\n  %b : Tensor = aten::exp(%a)\n  %c : Tensor = aten::neg_(%b)\n  return (%c)\n", {a});
  EXPECT_THAT(message_of([&] { out.at(0).toTensor().sum().backward(); }), HasSubstr("modified by an inplace operation"));
}

TEST(Plan, OutputsThatViewInputsAreViewsToAutograd) {
  const at::Tensor a = at::ones({2, 3});
  const Values out = run("graph(%a : Tensor):\n  %b : Tensor = aten::t(%a)\n  return (%b)\n", {a});
  const at::Tensor view = out.at(0).toTensor();
  EXPECT_TRUE(view.is_alias_of(a));
  ASSERT_TRUE(view.is_view());
  EXPECT_TRUE(view._base().is_same(a));
  const auto before = a._version();
  view.neg_();
  EXPECT_EQ(a._version(), before + 1) << "one version counter";
}

TEST(Plan, OutputsAreNoInferenceTensorsUnlessTheCallerIsInInferenceMode) {
  const char* const text = "graph(%a : Tensor):\n  %b : Tensor = aten::neg(%a)\n  return (%b)\n";
  const at::Tensor a = at::ones({2});
  const at::Tensor usual = run(text, {a}).at(0).toTensor();
  EXPECT_FALSE(usual.is_inference());
  const at::Tensor weight = at::ones({2}).requires_grad_(true);
  (usual * weight).sum().backward();
  EXPECT_TRUE(agree(weight.grad(), -a)) << "the result may be saved for backward";
  const c10::InferenceMode mode;
  EXPECT_TRUE(run(text, {a}).at(0).toTensor().is_inference());
}

TEST(Plan, LeavesTheDispatchersStateAsItWasAlsoAfterAnError) {
  const auto before = c10::impl::tls_local_dispatch_key_set();
  const char* const text = "graph(%a : Tensor, %b : Tensor):\n  %c : Tensor = aten::mul(%a, %b)\n  return (%c)\n";
  run(text, {at::ones({2}), at::ones({2})});
  EXPECT_THROW(run(text, {at::ones({2}), at::ones({3})}), c10::Error);
  const auto after = c10::impl::tls_local_dispatch_key_set();
  EXPECT_EQ(before.included_, after.included_);
  EXPECT_EQ(before.excluded_, after.excluded_);
}

TEST(Plan, AGradientIntroducedInTheGraphIsSeenThoughNoInputRequiresOne) {
  const Values out =
      run("graph(%a : Tensor):\n"
          "  %yes : bool = prim::Constant[value=1]()\n"
          "  %b : Tensor = aten::neg(%a)\n"
          "  %c : Tensor = aten::requires_grad_(%b, %yes)\n"
          "  %d : Tensor = aten::mul(%c, %c)\n"
          "  return (%d)\n",
          {at::ones({2})});
  EXPECT_TRUE(out.at(0).toTensor().requires_grad());
}

TEST(Plan, AFactoryThatIsAskedForAGradientIntroducesOne) {
  const auto graph =
      testing::graph_of_source("def f(x: float):\n    w = torch.tensor([x], requires_grad=True)\n    return w * 2\n");
  EXPECT_TRUE(run(*graph, {3.0}).at(0).toTensor().requires_grad());
  const auto plain = testing::graph_of_source("def f(x: float):\n    w = torch.tensor([x])\n    return w * 2\n");
  EXPECT_FALSE(run(*plain, {3.0}).at(0).toTensor().requires_grad());
}

size_t detaches_executed(const char* text, const at::Tensor& argument) {
  return testing::count_work([&] { run(text, {argument}); }).by_operator["aten::detach"].executions;
}

TEST(Plan, LeavesOutADetachThatNobodyCanTellWhereNoGradientIsRecorded) {
  const char* const computes =
      "graph(%a : Tensor):\n"
      "  %b : Tensor = aten::detach(%a)\n"
      "  %c : Tensor = aten::relu(%b)\n"
      "  return (%c)\n";
  const at::Tensor plain = at::ones({2});
  const at::Tensor leaf = at::ones({2}).set_requires_grad(true);
  EXPECT_EQ(detaches_executed(computes, plain), 0U);
  EXPECT_EQ(detaches_executed(computes, leaf), 1U);
  EXPECT_FALSE(run(computes, {leaf})[0].toTensor().requires_grad());
  const at::NoGradGuard no_grad;
  EXPECT_EQ(detaches_executed(computes, leaf), 0U);
}

TEST(Plan, KeepsADetachWhoseResultLeavesIsWrittenOrIsAskedAboutItself) {
  const at::NoGradGuard no_grad;
  const char* const leaves =
      "graph(%a : Tensor):\n"
      "  %b : Tensor = aten::detach(%a)\n"
      "  return (%b)\n";
  const at::Tensor leaf = at::ones({2}).set_requires_grad(true);
  EXPECT_EQ(detaches_executed(leaves, leaf), 1U);
  EXPECT_FALSE(run(leaves, {leaf})[0].toTensor().requires_grad());
  const char* const asks =
      "graph(%a : Tensor):\n"
      "  %b : Tensor = aten::detach(%a)\n"
      "  %c : bool = prim::requires_grad(%b)\n"
      "  return (%c)\n";
  EXPECT_EQ(detaches_executed(asks, leaf), 1U);
  EXPECT_FALSE(run(asks, {leaf})[0].toBool());
  const char* const writes =
      "graph(%a : Tensor):\n"
      "  %b : Tensor = aten::detach(%a)\n"
      "  %c : Tensor = aten::relu_(%b)\n"
      "  %d : Tensor = aten::neg(%b)\n"
      "  return (%d)\n";
  EXPECT_EQ(detaches_executed(writes, leaf), 1U);
  const char* const reshapes =
      "graph(%a : Tensor):\n"
      "  %b : Tensor = aten::detach(%a)\n"
      "  %c : Tensor = aten::t_(%a)\n"
      "  %d : Tensor = aten::neg(%b)\n"
      "  return (%d)\n";
  EXPECT_EQ(detaches_executed(reshapes, at::ones({2, 3})), 1U);
}

TEST(Plan, DrawsTheSameRandomNumbersAsEagerCalls) {
  const auto graph = graph_of(
      "graph(%x : Tensor):\n"
      "  %none : NoneType = prim::Constant()\n"
      "  %p : float = prim::Constant[value=0.5]()\n"
      "  %yes : bool = prim::Constant[value=1]()\n"
      "  %one : int = prim::Constant[value=1]()\n"
      "  %unused : Tensor = aten::rand_like(%x, %none, %none, %none, %none, %none)\n"
      "  %d : Tensor = aten::dropout(%x, %p, %yes)\n"
      "  %n : Tensor = aten::randn_like(%x, %none, %none, %none, %none, %none)\n"
      "  %r : Tensor = aten::add(%d, %n, %one)\n"
      "  return (%r)\n");
  const at::Tensor x = at::ones({8});
  at::manual_seed(3);
  const at::Tensor ours = run(*graph, {x}).at(0).toTensor();
  const at::Tensor ours_next = at::rand({3});
  at::manual_seed(3);
  at::rand_like(x);
  const at::Tensor dropped = at::dropout(x, 0.5, true);
  const at::Tensor theirs = dropped + at::randn_like(x);
  EXPECT_TRUE(agree(ours, theirs));
  EXPECT_TRUE(agree(ours_next, at::rand({3}))) << "the generator's state after the call";
}

}  // namespace
}  // namespace sconce
