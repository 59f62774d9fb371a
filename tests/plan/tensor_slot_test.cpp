// Shells and known operands tell devices apart.
#include "plan/prepared/tensor_slot.h"

#include "tests/support/cuda_on_host.h"
#include "tests/support/graphs.h"

#include "plan/prepared/step_state.h"

#include <ATen/ATen.h>
#include <gtest/gtest.h>

namespace sconce {
namespace {

using testing::CudaOnHost;

const c10::Device kFirst(c10::kCUDA, 0);
const c10::Device kSecond(c10::kCUDA, 1);

TEST(Shells, LieOnTheirDevice) {
  const at::Tensor shell = make_shell({2, 3}, {3, 1}, at::kFloat, kSecond);
  EXPECT_EQ(shell.device(), kSecond);
  EXPECT_EQ(shell.storage().device(), kSecond);
  float element = 0;
  point_storage_at(shell, &element);
  EXPECT_EQ(shell.storage().device(), kSecond);
  EXPECT_EQ(shell.const_data_ptr(), &element);
  EXPECT_EQ(shell.key_set(), CudaOnHost().tensor(at::ones({2, 3})).key_set());
}

TEST(Shells, OfDifferentDevicesHaveDifferentForms) {
  at::Tensor shell = make_shell({2, 3}, {3, 1}, at::kFloat, kFirst);
  EXPECT_TRUE(have_same_form(shell, make_shell({2, 3}, {3, 1}, at::kFloat, kFirst)));
  EXPECT_FALSE(have_same_form(shell, make_shell({2, 3}, {3, 1}, at::kFloat, kSecond)));
  EXPECT_FALSE(have_same_form(shell, make_shell({2, 3}, {3, 1}, at::kFloat)));
  reshape_shell(shell, {2, 3}, {3, 1}, at::kFloat, kSecond);
  EXPECT_EQ(shell.device(), kSecond);
}

TEST(Shells, ResultsArePlacedOnADevice) {
  KernelResult result;
  EXPECT_EQ(result.place({2, 3}, {}, at::kFloat, kFirst).device(), kFirst);
  EXPECT_EQ(result.place({2, 3}, {}, at::kFloat, kSecond).device(), kSecond);
  EXPECT_EQ(result.place({2, 3}, {}, at::kFloat).device(), c10::Device(c10::kCPU));
}

TEST(KnownOperands, MatchTensorsOfTheirDeviceOnly) {
  const CudaOnHost cuda;
  const at::Tensor tensor = cuda.tensor(at::ones({2, 3}), 0);
  KnownOperand known;
  known.shell = tensor;
  known.keys = tensor.key_set();
  known.has_index = true;
  const c10::IValue same = cuda.tensor(at::ones({2, 3}), 0);
  const c10::IValue other = cuda.tensor(at::ones({2, 3}), 1);
  EXPECT_TRUE(known.matches(same));
  EXPECT_TRUE(known.matches_flat(same, nullptr));
  EXPECT_FALSE(known.matches(other));
  EXPECT_FALSE(known.matches_flat(other, nullptr));
}

// Plans on tensors of two devices in turn, and on the CPU.
TEST(KnownOperands, PlansServeDevicesInTurn) {
  const CudaOnHost cuda;
  const auto graph = testing::graph_of(
      "graph(%x : Tensor, %w : Tensor):\n"
      "  %one : int = prim::Constant[value=1]()\n"
      "  %m : Tensor = aten::mm(%x, %w)\n"
      "  %r : Tensor = aten::relu(%m)\n"
      "  %y : Tensor = aten::add(%r, %x, %one)\n"
      "  return (%y)\n");
  GraphExecutor executor(graph->clone(), "f", Options().compile(CompileMode::kBlocking));
  const at::Tensor x = at::randn({3, 3});
  const at::Tensor w = at::randn({3, 3});
  const at::Tensor expected = x.mm(w).relu() + x;
  for (int run = 0; run < 9; ++run) {
    const int device = run % 3 - 1;  // -1: the CPU
    const auto put = [&](const at::Tensor& tensor) { return device < 0 ? tensor : cuda.tensor(tensor, device); };
    torch::jit::Stack stack = {put(x), put(w)};
    executor.run(stack);
    const at::Tensor found = stack.at(0).toTensor();
    EXPECT_EQ(found.device(), put(x).device());
    EXPECT_TRUE(at::equal(device < 0 ? found : cuda.values(found), expected)) << "run " << run;
  }
}

}  // namespace
}  // namespace sconce
