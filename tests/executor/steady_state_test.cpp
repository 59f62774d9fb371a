// Calls in the steady state: of the same arguments as before, when all plans and kernels are made.
#include <sconce/sconce.h>

#include "tests/executor/failing_memory.h"
#include "tests/support/graphs.h"

#include "plan/shell_check.h"

#include <ATen/ATen.h>
#include <c10/core/GradMode.h>
#include <gmock/gmock.h>

#include <cstdlib>
#include <string>

namespace sconce {
namespace {

using testing::agree;
using Values = std::vector<c10::IValue>;

std::string model_file(const std::string& name) {
  const char* dir = std::getenv("SCONCE_MODELS_DIR");
  return std::string(dir != nullptr ? dir : "build/models") + "/" + name + ".pt";
}

// The check of shells needs memory of its own.
class UncheckedShells {
 public:
  UncheckedShells() { check_shells(false); }
  ~UncheckedShells() { check_shells(before_); }
  UncheckedShells(const UncheckedShells&) = delete;
  UncheckedShells& operator=(const UncheckedShells&) = delete;

 private:
  const bool before_ = shells_are_checked();
};

// Returns the heap allocations of one run, after some runs that make plans, kernels and results. The caller drops the
// results of each run before the next one.
size_t allocations_of_run(GraphExecutor& executor, const Values& arguments) {
  const UncheckedShells unchecked;
  Values stack;
  stack.reserve(16);
  size_t made = 0;
  for (int run = 0; run < 5; ++run) {
    stack.assign(arguments.begin(), arguments.end());
    const size_t before = testing::allocations_made();
    executor.run(stack);
    made = testing::allocations_made() - before;
  }
  return made;
}

// Chains of one operator, and the operators between them.
std::string chain_of(const std::string& call, int length) {
  std::string text =
      "graph(%x : Tensor, %w : Tensor, %b : Tensor):\n"
      "  %one : int = prim::Constant[value=1]()\n"
      "  %sizes : int[] = prim::Constant[value=[16]]()\n"
      "  %eps : float = prim::Constant[value=0.001]()\n"
      "  %false : bool = prim::Constant[value=0]()\n"
      "  %last : int = prim::Constant[value=-1]()\n"
      "  %none : NoneType = prim::Constant()\n";
  std::string y = "%x";
  for (int i = 0; i < length; ++i) {
    const std::string next = "%y" + std::to_string(i);
    std::string line = call;
    for (size_t at = line.find("%y"); at != std::string::npos; at = line.find("%y", at + y.size())) {
      line.replace(at, 2, y);
    }
    text += "  " + next + " : Tensor = " + line + "\n";
    y = next;
  }
  return text + "  return (" + y + ")\n";
}

class SteadyChains : public ::testing::TestWithParam<const char*> {};

TEST_P(SteadyChains, RunWithoutHeapAllocations) {
  GraphExecutor executor(testing::graph_of(chain_of(GetParam(), 20)), "f", Options().compile(CompileMode::kBlocking));
  const at::NoGradGuard no_grad;
  EXPECT_EQ(allocations_of_run(executor, {at::rand({3, 16}), at::rand({16, 16}), at::rand({16})}), 0U);
}

INSTANTIATE_TEST_SUITE_P(Operators, SteadyChains,
                         ::testing::Values("aten::add(%y, %x, %one)", "aten::tanh(%y)", "aten::linear(%y, %w, %b)",
                                           "aten::layer_norm(%y, %sizes, %b, %b, %eps, %false)",
                                           "aten::softmax(%y, %last, %none)", "aten::matmul(%y, %w)"));

// A recurrent cell whose states are carried from trip to trip.
const char* const kRecurrent = R"(graph(%x : Tensor, %w : Tensor, %b : Tensor, %trips : int):
  %true : bool = prim::Constant[value=1]()
  %one : int = prim::Constant[value=1]()
  %h : Tensor, %c : Tensor = prim::Loop(%trips, %true, %x, %x)
    block0(%i : int, %h.1 : Tensor, %c.1 : Tensor):
      %g : Tensor = aten::linear(%h.1, %w, %b)
      %s : Tensor = aten::sigmoid(%g)
      %t : Tensor = aten::tanh(%g)
      %k : Tensor = aten::mul(%s, %c.1)
      %c.2 : Tensor = aten::add(%k, %t, %one)
      %u : Tensor = aten::tanh(%c.2)
      %h.2 : Tensor = aten::mul(%u, %s)
      -> (%true, %h.2, %c.2)
  return (%h, %c)
)";

TEST(SteadyState, LoopsRunWithoutHeapAllocations) {
  GraphExecutor executor(testing::graph_of(kRecurrent), "f", Options().compile(CompileMode::kBlocking));
  const at::NoGradGuard no_grad;
  const Values arguments = {at::rand({2, 16}), at::rand({16, 16}), at::rand({16})};
  for (const int64_t trips : {1, 7, 40}) {
    Values with_trips = arguments;
    with_trips.emplace_back(trips);
    EXPECT_EQ(allocations_of_run(executor, with_trips), 0U) << trips << " trips";
  }
}

TEST(SteadyState, AModelRunsWithoutHeapAllocations) {
  const Module module = load(model_file("mlp"), Options().compile(CompileMode::kBlocking));
  const at::NoGradGuard no_grad;
  EXPECT_EQ(allocations_of_run(module.method("forward"), {at::rand({3, 16})}), 0U);
}

// A method that writes in place makes the key of a call compare the storages of arguments and attributes.
TEST(SteadyState, KeysOfCallsThatWriteInPlaceNeedNone) {
  const Module module =
      accelerate(testing::module_of("def forward(self, x):\n    y = x * self.w\n    x.add_(self.w)\n    return y\n",
                                    {{"w", at::ones({2, 3})}, {"v", at::ones({2, 3})}}),
                 Options().compile(CompileMode::kBlocking));
  const at::NoGradGuard no_grad;
  EXPECT_EQ(allocations_of_run(module.method("forward"), {at::rand({2, 3})}), 0U);
}

// ---- no memory ----------------------------------------------------------------------------------------------------------

// Whatever allocation fails, in a call that lays out an arena, prepares steps or makes results: the call raises or is right,
// and so are the calls after it.
TEST(SteadyState, ARunWithoutMemoryRaisesOrIsRightAndTheNextIsRight) {
  const UncheckedShells unchecked;
  const at::NoGradGuard no_grad;
  const at::Tensor w = at::rand({16, 16});
  const at::Tensor b = at::rand({16});
  GraphExecutor reference(testing::graph_of(kRecurrent), "f", Options().optimize(false));
  const auto call = [&](GraphExecutor& executor, const at::Tensor& x) {
    Values stack = {x, w, b, 3};
    executor.run(stack);
    return stack;
  };
  size_t raised = 0;
  bool failed = true;
  for (size_t number = 1; failed; ++number) {
    GraphExecutor executor(testing::graph_of(kRecurrent), "f", Options().compile(CompileMode::kBlocking));
    call(executor, at::rand({2, 16}));
    const at::Tensor x = at::rand({5, 16});
    const Values expected = call(reference, x);
    const auto expect_right = [&](const Values& got) {
      ASSERT_EQ(got.size(), expected.size());
      for (size_t i = 0; i < got.size(); ++i) {
        EXPECT_TRUE(at::allclose(got[i].toTensor(), expected[i].toTensor())) << "allocation " << number;
      }
    };
    Values got;
    {
      const testing::FailingMemory memory(number);
      try {
        got = call(executor, x);
      } catch (const std::exception&) {
        ++raised;
      }
      failed = memory.failed();
    }
    if (!got.empty()) {
      expect_right(got);
    }
    for (int i = 0; i < 3; ++i) {
      expect_right(call(executor, x));
    }
  }
  EXPECT_GT(raised, 10U);
}

}  // namespace
}  // namespace sconce
