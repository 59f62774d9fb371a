// Small programs on the simulated GPU. A module with captures and LibTorch's executor agree in every call: in values, in
// who shares memory and who is a view, and in what is written.
#include "tests/differential/observed_call.h"
#include "tests/simulated_gpu/simulated_gpu.h"
#include "tests/support/graphs.h"
#include "tools/sconce/values/deep_copy.h"

#include <sconce/sconce.h>

#include <ATen/ATen.h>
#include <c10/core/GradMode.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/csrc/jit/api/module.h>
#include <torch/csrc/jit/runtime/graph_executor.h>

#include <functional>
#include <string>
#include <vector>

namespace sconce::testing {
namespace {

using Values = std::vector<c10::IValue>;

const c10::Device kProgramsGpu(c10::kCUDA, 0);
constexpr cli::CompareOptions kProgramsTolerance{.rtol = 1e-4, .atol = 1e-4};

at::Tensor matrix() { return at::randn({4, 4}); }
c10::IValue ints(const std::vector<int64_t>& values) { return c10::List<int64_t>(values); }

class CapturedPrograms : public ::testing::Test {
 protected:
  void TearDown() override { EXPECT_THAT(gpu_.driver().misuse(), ::testing::IsEmpty()); }

  // Calls a module of the methods with these arguments (made on the CPU), with kernels and without. Returns the replays.
  uint64_t expect_agree(const std::string& methods, const std::function<Values(int call)>& arguments_of, int calls = 10) {
    Options without_kernels;
    without_kernels.passes().disable("form_groups");
    return expect_agree(methods, arguments_of, calls, Options()) +
           expect_agree(methods, arguments_of, calls, without_kernels);
  }

  uint64_t expect_agree(const std::string& methods, const std::function<Values(int call)>& arguments_of, int calls,
                        Options options) {
    torch::jit::Module peer = module_of(methods);
    peer.eval();
    Module module = accelerate(peer.deepcopy(), options.compile(CompileMode::kBlocking));
    for (int call = 0; call < calls && !HasFailure(); ++call) {
      at::manual_seed(static_cast<uint64_t>(call));
      const Values arguments = cli::deep_copy_to(arguments_of(call), kProgramsGpu);
      const ObservedCall expected = observe_call(arguments, 1, [&](torch::jit::Stack& stack) {
        const torch::jit::GraphOptimizerEnabledGuard not_optimized(false);
        stack = {peer.forward(stack)};
      });
      const ObservedCall found =
          observe_call(arguments, 1, [&](torch::jit::Stack& stack) { stack = {module.forward(stack)}; });
      EXPECT_FALSE(expected.error) << *expected.error;
      for (const std::string& line : differences(found, expected, Strictness::kEverything, kProgramsTolerance)) {
        ADD_FAILURE() << "call " << call << ": " << line << "\n" << methods;
      }
    }
    uint64_t replays = 0;
    for (const PlanExplanation& plan : module.method("forward").explain().plans) {
      for (const RecordedExplanation& range : plan.recorded) {
        replays += range.replays;
      }
    }
    return replays;
  }

  const at::NoGradGuard no_grad_;
  SimulatedGpu gpu_;
};

TEST_F(CapturedPrograms, ReadWhereInItsStorageATensorLies) {
  const auto part = [](int call) { return Values{at::randn({8}).slice(0, call % 3, call % 3 + 4)}; };
  expect_agree(R"(
def forward(self, x):
    y = torch.tanh(x) + 1
    return torch.relu(y) * 2, x.as_strided([3], [1], 1) * 2, y.as_strided([2], [2], 1)
)",
               part);
  expect_agree("def forward(self, x):\n    return torch.tanh(x) + 1, x.storage_offset(), torch.relu(x) * x.stride(0)\n",
               part);
}

TEST_F(CapturedPrograms, WriteAliasesThatCountNoVersions) {
  expect_agree(
      "def forward(self, x):\n    y = torch.tanh(x) + 1\n    x.data.add_(1)\n    return torch.relu(y) * x, x.data\n",
      [](int) { return Values{matrix()}; });
  const uint64_t replays = expect_agree(
      "def forward(self, x):\n    y = torch.tanh(x) + 1\n    x.detach().add_(1)\n    return torch.relu(y) * x, y.detach(), "
      "y\n",
      [](int) { return Values{matrix()}; });
  EXPECT_GT(replays, 10U);
}

TEST_F(CapturedPrograms, ReadWhetherAGradientIsRequired) {
  expect_agree(
      "def forward(self, x):\n    y = torch.tanh(x) + 1\n    if x.requires_grad:\n        y = y + 1\n"
      "    return torch.relu(y) * x, x.requires_grad\n",
      [](int call) { return Values{matrix().set_requires_grad(call % 3 == 2)}; });
}

// The list is the caller's, whichever way it takes through the program.
TEST_F(CapturedPrograms, ChangeListsOfTheCaller) {
  const auto arguments = [](int call) { return Values{matrix(), ints({1, 2}), 3 + call / 5}; };
  expect_agree(R"(
def forward(self, x, l: List[int], n: int):
    m = [5]
    if n > 2:
        m = l
    m[0] = m[0] + n
    y = torch.tanh(x) + m[0]
    return torch.relu(y) * 2
)",
               arguments);
  expect_agree(R"(
def forward(self, x, l: List[int], n: int):
    m = l
    k = [1]
    for i in range(n):
        t = m
        m = k
        k = t
        m.append(i)
        x = torch.tanh(x) + len(m)
    return torch.relu(x) * 2, len(l)
)",
               arguments);
  expect_agree(R"(
def forward(self, x, l: List[int], n: int):
    ls = [l, [1, 2]]
    m = ls[n % 2]
    m.append(5)
    y = torch.tanh(x) + len(m)
    return torch.relu(y) * 2, len(l)
)",
               arguments);
}

TEST_F(CapturedPrograms, ReturnConjugates) {
  expect_agree(R"(
def forward(self, x):
    g = torch.exp(x * 2 + 1)
    return g, torch.conj(g), g.real, torch.conj(x), torch.conj(g).imag, torch.conj(x * 3), g.abs()
)",
               [](int) { return Values{at::randn({4}, at::kComplexFloat)}; });
}

TEST_F(CapturedPrograms, ReturnViewsAndTheSameTensorAsLibTorchDoes) {
  const uint64_t replays = expect_agree(R"(
def forward(self, x):
    h = torch.mm(x, x).t()
    g = h + 1
    k = torch.relu(g)
    return h, k.contiguous(), k, g[0], g[1:, 1:], g.expand([2, 4, 4]), x[0], torch.tanh(g).unsqueeze(0)
)",
                                        [](int) { return Values{matrix()}; });
  EXPECT_GT(replays, 10U);
  torch::jit::Module model = module_of("def forward(self, x):\n    h = torch.tanh(x) + 1\n    return h, h.contiguous()\n");
  Module module = accelerate(model, Options().compile(CompileMode::kBlocking));
  for (int call = 0; call < 5; ++call) {
    const c10::IValue found = module.forward({gpu_.tensor(matrix())});
    EXPECT_TRUE(found.toTupleRef().elements()[0].toTensor().is_same(found.toTupleRef().elements()[1].toTensor()));
  }
}

// A result that steps of the plan alone use need not be copied, unless somebody holds what shares its memory.
TEST_F(CapturedPrograms, WriteResultsThroughViewsThatEscape) {
  const uint64_t replays = expect_agree(R"(
def forward(self, x):
    b = torch.mm(torch.tanh(x), x) * 2
    v = b[0]
    if bool(b.sum() > -1e9):
        v.add_(1.5)
    c = torch.nonzero(b > 0)
    return torch.relu(torch.mm(b, x) + v), v, c
)",
                                        [](int) { return Values{matrix()}; });
  EXPECT_GT(replays, 10U);
}

// The first range is captured again after the second one, and must not reuse the memory of that capture.
TEST_F(CapturedPrograms, KeepResultsWhileLaterRangesRun) {
  const uint64_t replays = expect_agree(
      R"(
def forward(self, x, n: int, m: int):
    b = torch.tanh(x) * n
    p = torch.flip(b, [0])
    q = torch.cumsum(b, 1)
    r = torch.mm(p, q) * 2
    s = 1.0 if bool(r.sum() > -1e9) else 7.0
    a = torch.mm(x, x) * s + m
    a = torch.mm(torch.mm(torch.mm(a, a), a), torch.flip(torch.cumsum(a, 0), [1]))
    t = 1.0 if bool(a.sum() > -1e9) else 7.0
    return float(((torch.relu(torch.mm(r, p)) + q) * t).sum().item())
)",
      [](int call) { return Values{matrix(), call / 5 % 4, call / 13 % 3}; }, 60);
  EXPECT_GT(replays, 150U);
}

TEST_F(CapturedPrograms, RunRangesThatWereSkippedAtFirst) {
  expect_agree(
      R"(
def forward(self, x, c):
    b = x
    if bool(c.item()):
        b = torch.tanh(x) + 1
        b = torch.mm(b, b) * 2
    s = 1.0 if bool(b.sum() > -1e9) else 7.0
    a = torch.mm(x, x) * s
    a = torch.mm(torch.mm(a, a), a)
    t = 1.0 if bool(a.sum() > -1e9) else 7.0
    return torch.relu(torch.mm(b, a) * t) + b, a
)",
      [](int call) { return Values{matrix(), at::full({}, call > 4 || call == 2, at::kBool)}; }, 14);
}

// What a kernel computes is one step: no range begins inside.
TEST_F(CapturedPrograms, LeaveKernelsWhole) {
  expect_agree(R"(
def forward(self, x, m):
    y = torch.softmax(x.masked_fill(m, -1e9), -1)
    z = torch.where(m, y, x)
    return y, z, m.logical_not(), m & (x > 0), (m | (x > 0)).any(), m.all(), z.abs().sum()
)",
               [](int) { return Values{matrix(), at::randn({4, 4}) > 0}; });
}

}  // namespace
}  // namespace sconce::testing
