// The memory of training steps: plans need no more than eager execution, but for what they keep from step to step, their
// arenas and small results; and many steps need no more than a few. A plan frees what its run does not use again.
//
// SCONCE_MEMORY_STEPS sets the number of steps; a large model takes at most 30.
#include "tests/support/environment_number.h"
#include "tests/support/graphs.h"
#include "tests/training/trainee.h"
#include "tools/sconce/bench/counted_memory.h"
#include "tools/sconce/bench/resident_memory.h"

#include <sconce/graph_executor.h>

#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <iostream>

namespace sconce::testing {
namespace {

constexpr uint64_t kWarmUp = 5;  // the first steps make plans, the optimizer's state and the arena

// That the steps of these models keep (plan/prepared/reused_results.h); copies that backward has saved are among them. Two
// plans keep theirs: the one with subgraphs, which runs the first calls, and the recording.
constexpr size_t kMaxSmallResults = 2 * size_t{80} * 1024;

struct StepMemory {
  size_t peak = 0;         // of tensors and arenas, what the model loaded included
  size_t arenas = 0;       // that plans keep
  size_t after_few = 0;    // living, after the warm-up
  size_t after_many = 0;   // living, after all steps
  double resident_growth;  // of the process in the same time
};

StepMemory memory_of(const std::string& model, Trainee::Executor executor, uint64_t steps) {
  cli::CountedMemory::begin();
  const size_t before = cli::CountedMemory::living_bytes();
  Trainee trainee(model, executor, cli::Optimizer::kAdam);
  StepMemory memory;
  for (uint64_t step = 0; step < kWarmUp; ++step) {
    trainee.train(step);
  }
  const double resident = cli::resident_bytes();
  memory.after_few = cli::CountedMemory::living_bytes() - before;
  cli::CountedMemory::restart_peak();
  for (uint64_t step = kWarmUp; step < steps; ++step) {
    trainee.train(step);
  }
  memory.peak = cli::CountedMemory::peak_bytes() - before;
  memory.after_many = cli::CountedMemory::living_bytes() - before;
  memory.resident_growth = cli::resident_bytes() - resident;
  if (trainee.sconce() != nullptr) {
    memory.arenas = cli::arenas_of(trainee.sconce()->method("forward").explain()).bytes;
  }
  return memory;
}

struct MeasuredModel {
  const char* name;
  uint64_t max_steps;
};
void PrintTo(const MeasuredModel& model, std::ostream* out) { *out << model.name; }

class TrainingMemory : public ::testing::TestWithParam<MeasuredModel> {};

TEST_P(TrainingMemory, PeakIsEagersAndWhatPlansKeepAndStaysFlat) {
  const uint64_t steps = std::min(GetParam().max_steps, environment_number("SCONCE_MEMORY_STEPS", 30));
  const StepMemory eager = memory_of(GetParam().name, Trainee::Executor::kEager, steps);
  const StepMemory ours = memory_of(GetParam().name, Trainee::Executor::kSconce, steps);
  std::cout << GetParam().name << ", " << steps << " steps: peak of tensors " << ours.peak << " bytes, eager " << eager.peak
            << " (" << static_cast<double>(ours.peak) / static_cast<double>(eager.peak) << "x), of which arenas "
            << ours.arenas << "; living after " << kWarmUp << " steps " << ours.after_few << ", after all "
            << ours.after_many << "; resident growth " << ours.resident_growth / 1024 << " KiB, eager "
            << eager.resident_growth / 1024 << " KiB\n";
  ASSERT_GE(ours.after_few, eager.after_few);
  const size_t kept = ours.after_few - eager.after_few;
  EXPECT_LE(ours.peak, eager.peak + kept);
  EXPECT_LE(kept, ours.arenas + kMaxSmallResults);
  EXPECT_EQ(ours.after_many, ours.after_few);
}

INSTANTIATE_TEST_SUITE_P(Models, TrainingMemory,
                         ::testing::Values(MeasuredModel{"mlp", 1000}, MeasuredModel{"lstm_loop", 1000},
                                           MeasuredModel{"transformer_encoder_train", 1000},
                                           MeasuredModel{"resnet18_train", 30}),
                         [](const auto& made) { return std::string(made.param.name); });

// The last use of `b` by position is in the second branch. A run that takes the first frees it, too, before the products
// that follow, of which two live at a time.
TEST(PlanMemory, IsFreedWhicheverBranchRuns) {
  constexpr int64_t kRows = 256;
  constexpr size_t kMatrix = kRows * kRows * sizeof(float);
  GraphExecutor executor(graph_of_source(R"(
def f(x, first: bool):
    b = torch.mm(torch.mm(x, x), x)
    if first:
        y = torch.mv(b, x[0])
    else:
        y = torch.mv(b, x[1])
    return y, torch.mm(torch.mm(torch.mm(x.t(), x), x), x).sum()
)"),
                         "f", Options().compile(CompileMode::kNever));
  cli::CountedMemory::begin();
  const at::NoGradGuard no_grad;
  const at::Tensor x = at::rand({kRows, kRows});
  for (const bool first : {true, false}) {
    size_t peak = 0;
    for (int call = 0; call < 3; ++call) {
      const size_t before = cli::CountedMemory::living_bytes();
      cli::CountedMemory::restart_peak();
      std::vector<c10::IValue> stack = {x, first};
      executor.run(stack);
      peak = cli::CountedMemory::peak_bytes() - before;
    }
    EXPECT_GE(peak, 2 * kMatrix);
    EXPECT_LT(peak, 3 * kMatrix) << (first ? "first branch" : "second branch");
  }
}

}  // namespace
}  // namespace sconce::testing
