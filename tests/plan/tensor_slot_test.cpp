// Shells, known operands and frames tell devices apart.
#include "plan/tensor_slot.h"

#include "tests/support/cuda_on_host.h"
#include "tests/support/graphs.h"

#include "lower/lower.h"
#include "plan/plan.h"
#include "plan/prepared/reused_results.h"
#include "plan/prepared/step_state.h"

#include <ATen/ATen.h>
#include <c10/core/Allocator.h>
#include <gtest/gtest.h>

#include <array>

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

TEST(Shells, NewTensorsAndMemoryLieOnTheDeviceOfTheShell) {
  const CudaOnHost cuda;
  for (const c10::Device device : {c10::Device(c10::kCPU), kFirst, kSecond}) {
    const at::Tensor shell = make_shell({2, 3}, {1, 2}, at::kHalf, device);
    const at::Tensor made = empty_like_shell(shell);
    EXPECT_TRUE(have_same_form(made, shell));
    EXPECT_EQ(made.storage().nbytes(), shell.storage().nbytes());
    EXPECT_EQ(made.key_set(), shell.key_set());
    EXPECT_EQ(allocate_on(device, 64).device(), device);
  }
  EXPECT_EQ(c10::GetAllocator(c10::kCUDA)->allocate(64).device(), kFirst) << "the current device is another one now";
}

TEST(ReusedResults, KeepTensorsOfTheCpuAlone) {
  const CudaOnHost cuda;
  for (const c10::Device device : {c10::Device(c10::kCPU), kFirst}) {
    ReusedResults results;
    at::Tensor made = results.take(make_shell({2, 3}, {3, 1}, at::kFloat, device));
    EXPECT_EQ(made.device(), device);
    const c10::weak_intrusive_ptr<c10::TensorImpl> weak(made.getIntrusivePtr());
    made.reset();
    EXPECT_EQ(weak.expired(), device.is_cuda());
  }
}

TEST(Frames, HaveSlotsOfTheCpuAloneInTheirArena) {
  const CudaOnHost cuda;
  const auto plan = lower(testing::graph_of("graph(%x : Float(4, device=cuda:1)):\n"
                                            "  %a : Float(4, device=cuda:1) = aten::relu(%x)\n"
                                            "  %b : Float(4, device=cuda:1) = aten::sigmoid(%a)\n"
                                            "  %c : Float(4, device=cuda:1) = aten::tanh(%b)\n"
                                            "  return (%c)\n"),
                          nullptr, nullptr, {.is_prepared = true})
                        .value_or_throw("the graph has no plan");
  ASSERT_EQ(plan->memory().slot_count(), 2U);
  Frame frame(*plan);
  const std::array devices = {kSecond, c10::Device(c10::kCPU)};
  for (uint32_t i = 0; i < devices.size(); ++i) {
    frame.slots[i].shell = make_shell({4}, {1}, at::kFloat, devices[i]);
    frame.slots[i].bytes = 16;
    frame.allocate(i);
    EXPECT_EQ(frame.slots[i].block.device(), devices[i]);
    EXPECT_EQ(frame.slots[i].shell.const_data_ptr(), frame.slots[i].data);
  }
  frame.report_overflow();
  frame.clear();
  ASSERT_NE(plan->memory().layout(), nullptr);
  EXPECT_EQ(plan->memory().layout()->bytes, kArenaAlignment);
  frame.update_layout();
  EXPECT_FALSE(frame.slots[0].in_arena) << "it lies on a GPU";
  EXPECT_TRUE(frame.slots[1].in_arena);
  frame.slots[1].shell = make_shell({4}, {1}, at::kFloat, kSecond);
  frame.place_in_arena(1);
  EXPECT_FALSE(frame.slots[1].in_arena) << "now this one does, too";
}

TEST(KnownOperands, MatchTensorsOfTheirDeviceOnly) {
  const CudaOnHost cuda;
  const at::Tensor tensor = cuda.tensor(at::ones({2, 3}), 0);
  OperandGuard known;
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
    EXPECT_TRUE(at::allclose(device < 0 ? found : cuda.values(found), expected)) << "run " << run;
  }
}

}  // namespace
}  // namespace sconce
