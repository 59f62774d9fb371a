// Both: one graph as two plans.
#pragma once

#include "tests/support/graphs.h"

#include "lower/lower.h"
#include "plan/run_plan.h"

#include <gtest/gtest.h>

#include <memory>
#include <string>
#include <utility>

namespace sconce::testing {

// A graph lowered twice: with prepared steps, which may pack all inputs but the first, and with ordinary ones.
class Both {
 public:
  explicit Both(const std::string& text, bool is_exact = true) {
    prepared_ = std::move(*lower(
        graph_of(text), nullptr, nullptr,
        LoweringOptions{
            .is_prepared = true, .limits = {.is_exact = is_exact, .packs_weights = !is_exact}, .first_bound_input = 1}));
    ordinary_ = std::move(*lower(graph_of(text)));
  }

  const Plan& plan() const { return *prepared_; }

  torch::jit::Stack run(const torch::jit::Stack& arguments) {
    torch::jit::Stack stack = arguments;
    run_plan(*prepared_, stack, AutogradUse::kNone);
    return stack;
  }
  torch::jit::Stack run_ordinary(const torch::jit::Stack& arguments) {
    torch::jit::Stack stack = arguments;
    run_plan(*ordinary_, stack, AutogradUse::kNone);
    return stack;
  }
  void expect_equal(const torch::jit::Stack& arguments, double tolerance = 0) {
    const torch::jit::Stack expected = run_ordinary(arguments);
    const torch::jit::Stack got = run(arguments);
    ASSERT_EQ(got.size(), expected.size());
    for (size_t i = 0; i < got.size(); ++i) {
      EXPECT_TRUE(agree(got[i], expected[i], tolerance)) << "output " << i;
    }
  }

 private:
  std::unique_ptr<Plan> prepared_;
  std::unique_ptr<Plan> ordinary_;
};

}  // namespace sconce::testing
