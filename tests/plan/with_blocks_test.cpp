// `with` blocks are left once, whatever ends the run.
#include "plan/run_plan.h"

#include <gtest/gtest.h>

#include <functional>
#include <memory>
#include <string>
#include <vector>

namespace sconce {
namespace {

// No class of exception: what a thread's cancellation throws is none either.
struct NoException {};

class CountingContext final : public ContextManager {
 public:
  c10::IValue leave(c10::IValue object) const override {
    left.push_back(object.toInt());
    if (throws && left.size() == 1) {
      throw NoException();
    }
    return {};
  }
  mutable std::vector<int64_t> left;
  bool throws = false;
};

class ActionStep final : public Step {
 public:
  explicit ActionStep(std::function<void(Frame&)> action) : Step(false), action_(std::move(action)) {}
  void run(Frame& frame) const override { action_(frame); }
  std::string describe() const override { return "action"; }

 private:
  std::function<void(Frame&)> action_;
};

// Enters the contexts 1 and 2 and throws.
std::unique_ptr<Plan> failing_plan(const CountingContext& context) {
  std::vector<Plan::PlannedStep> steps;
  const auto add = [&](std::function<void(Frame&)> action) {
    steps.push_back({std::make_unique<ActionStep>(std::move(action)), nullptr});
  };
  add([&context](Frame& frame) { frame.entered.push_back({1, &context}); });
  add([&context](Frame& frame) { frame.entered.push_back({2, &context}); });
  add([](Frame&) { throw NoException(); });
  return std::make_unique<Plan>(std::make_shared<Graph>(), std::move(steps), std::vector<c10::IValue>(),
                                std::vector<Register>(), 0, false);
}

TEST(WithBlocks, AreLeftByAnExceptionOfAnyClass) {
  const CountingContext context;
  const auto plan = failing_plan(context);
  torch::jit::Stack stack;
  EXPECT_THROW(run_plan(*plan, stack, AutogradUse::kAll), NoException);
  EXPECT_EQ(context.left, (std::vector<int64_t>{2, 1})) << "the innermost first";
  EXPECT_THROW(run_plan(*plan, stack, AutogradUse::kAll), NoException);
  EXPECT_EQ(context.left, (std::vector<int64_t>{2, 1, 2, 1})) << "the frame kept nothing of the first run";
}

TEST(WithBlocks, AreLeftThoughLeavingOneThrowsNoException) {
  CountingContext context;
  context.throws = true;
  const auto plan = failing_plan(context);
  torch::jit::Stack stack;
  EXPECT_THROW(run_plan(*plan, stack, AutogradUse::kAll), NoException);
  EXPECT_EQ(context.left, (std::vector<int64_t>{2, 1}));
}

}  // namespace
}  // namespace sconce
