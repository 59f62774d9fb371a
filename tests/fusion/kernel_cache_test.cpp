// The kernels of the process, while the background thread compiles them.
#include "fusion/cpu/kernel_cache.h"

#include "tests/fusion/kernel_call.h"
#include "tests/support/graphs.h"

#include "base/compile_queue.h"
#include "fusion/group_compilers.h"
#include "fusion/program/kernel_width.h"
#include "lower/lower.h"
#include "plan/run_plan.h"

#include <ATen/ATen.h>
#include <c10/core/GradMode.h>
#include <gtest/gtest.h>

#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <future>
#include <memory>
#include <string>
#include <thread>

namespace sconce::testing {
namespace {

// Returns a program that no test and no process has compiled before: x * literal + literal, and so on.
KernelProgram new_program(uint32_t length) {
  static double last = static_cast<double>(std::chrono::system_clock::now().time_since_epoch().count() % 1'000'000'000);
  last += 200;  // floats of this size differ by 1.2e-7
  KernelProgram program;
  program.inputs = {{at::kFloat, Access::kElements}};
  program.code.push_back({.op = MachineOp::kLoad, .type = at::kFloat});
  program.code.push_back({.op = MachineOp::kLiteral, .type = at::kFloat, .literal = static_cast<float>(1 + last / 1e9)});
  for (uint32_t i = 0; i < length; ++i) {
    const auto x = static_cast<uint32_t>(program.code.size() - 1);
    program.code.push_back({.op = MachineOp::kFma, .type = at::kFloat, .a = i == 0 ? 0 : x, .b = 1, .c = 1});
  }
  program.outputs = {{at::kFloat, static_cast<uint32_t>(program.code.size() - 1)}};
  return program;
}

std::shared_ptr<CachedKernel> find(uint32_t length, bool is_blocking) {
  return KernelCache::instance().find(new_program(length), kernel_lanes(), is_blocking, "new");
}

void wait_for_compiles() {
  CompileQueue::of_process().run_and_wait([] {});
}

// Asks for a kernel that takes long to compile. Returns once that has begun.
std::shared_ptr<CachedKernel> begin_long_compile() {
  const auto is_next = std::make_shared<std::atomic<bool>>(false);
  EXPECT_TRUE(CompileQueue::of_process().submit([is_next] { *is_next = true; }));
  auto kernel = find(6000, /*is_blocking=*/false);
  while (!*is_next) {
    std::this_thread::yield();
  }
  std::this_thread::sleep_for(std::chrono::milliseconds(20));
  return kernel;
}

// Occupies the background thread and fills the queue.
class FullQueue {
 public:
  FullQueue() {
    EXPECT_TRUE(CompileQueue::of_process().submit([this] {
      begun_.set_value();
      go_on_.get_future().wait();
    }));
    begun_.get_future().wait();
    while (CompileQueue::of_process().submit([] {})) {
    }
  }
  ~FullQueue() {
    go_on_.set_value();
    // A refused job runs on this thread, so that one must be taken.
    const auto done = std::make_shared<std::promise<void>>();
    while (!CompileQueue::of_process().submit([done] { done->set_value(); })) {
      std::this_thread::yield();
    }
    done->get_future().wait();
  }
  FullQueue(const FullQueue&) = delete;
  FullQueue& operator=(const FullQueue&) = delete;

 private:
  std::promise<void> begun_;
  std::promise<void> go_on_;
};

class KernelCaches : public ::testing::Test {
 protected:
  void SetUp() override { ASSERT_TRUE(why_no_kernels().empty()) << why_no_kernels(); }
};

// A run that asks about a kernel gets its answer while the kernel is being compiled. The test tries again with another
// kernel where the machine stops this thread for the length of the compile.
TEST_F(KernelCaches, NoRunWaitsForACompile) {
  bool asked_meanwhile = false;
  for (int attempt = 0; attempt < 5 && !asked_meanwhile; ++attempt) {
    const auto kernel = begin_long_compile();
    EXPECT_EQ(kernel->refusal(), "");
    EXPECT_EQ(kernel->groups().size(), 1U);
    asked_meanwhile = kernel->function() == nullptr;
    wait_for_compiles();
    EXPECT_NE(kernel->function(), nullptr) << kernel->refusal();
  }
  EXPECT_TRUE(asked_meanwhile);
}

#if !defined(__SANITIZE_THREAD__)  // whose threads do not survive a fork
TEST_F(KernelCaches, AProcessMayForkDuringACompile) {
  const auto kernel = begin_long_compile();
  const pid_t child = ::fork();
  if (child == 0) {
    alarm(120);  // ends the child if it waits for a thread that it does not have
    const bool is_right = kernel->refusal().empty() && find(3, /*is_blocking=*/false)->refusal().empty() &&
                          find(4, /*is_blocking=*/true)->function() != nullptr;
    CompileQueue::of_process().stop();
    _exit(is_right ? 0 : 1);
  }
  int status = 1;
  EXPECT_EQ(waitpid(child, &status, 0), child);
  EXPECT_EQ(status, 0);
  wait_for_compiles();
  EXPECT_NE(kernel->function(), nullptr) << kernel->refusal();
}
#endif

TEST_F(KernelCaches, AKernelThatAFullQueueRefusedIsCompiledLater) {
  const at::NoGradGuard no_grad;
  const std::string literal = std::to_string(new_program(0).code.back().literal);
  const auto plan = plan_with_kernels(
      "graph(%x : Tensor):\n"
      "  %c : float = prim::Constant[value=" +
          literal +
          "]()\n"
          "  %a : Tensor = aten::sinh(%x)\n"
          "  %b : Tensor = aten::mul(%a, %c)\n"
          "  %d : Tensor = aten::mul(%b, %x)\n"
          "  return (%d)\n",
      background_kernels());
  const auto run = [&] {
    torch::jit::Stack stack = {at::rand({3})};
    run_plan(*plan, stack, AutogradUse::kNone);
  };
  const auto compiled = [&] {
    const auto kernels = KernelCache::instance().kernels();
    return std::any_of(kernels.begin(), kernels.end(), [&](const auto& kernel) {
      const auto groups = kernel->groups();
      return kernel->function() != nullptr && std::find(groups.begin(), groups.end(), "sinh mul mul") != groups.end();
    });
  };
  {
    const FullQueue full;
    run();
  }
  EXPECT_FALSE(compiled()) << "another test has such a group";
  run();
  wait_for_compiles();
  EXPECT_TRUE(compiled());
}

}  // namespace
}  // namespace sconce::testing
