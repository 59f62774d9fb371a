// check --grad tells rounding from a fault.
#include "tools/sconce/check/rounding.h"

#include <ATen/ATen.h>
#include <gtest/gtest.h>
#include <torch/csrc/jit/api/module.h>

#include <limits>
#include <string>
#include <vector>

namespace sconce::cli {
namespace {

torch::jit::Module sine_of(double frequency) {
  torch::jit::Module module("m");
  module.register_parameter("w", at::ones({4}).requires_grad_(true), /*is_buffer=*/false);
  module.define("def forward(self, x):\n    return torch.sin(x * self.w * " + std::to_string(frequency) + ")\n");
  return module;
}

Mismatch off_by(double error) { return {"grad of w", "1 of 4 elements differ", error, 1e-2, {0}}; }

RoundingCheck check(double frequency, double error) {
  const std::vector<c10::IValue> arguments = {at::linspace(1, 2, 4)};
  return check_rounding({off_by(error)}, sine_of(frequency), "forward", arguments, /*seed=*/0);
}

TEST(Rounding, ExplainsWhatLibTorchsOwnGradientsChangeBy) {
  const RoundingCheck check_of_steep = check(1e5, 1.0);
  EXPECT_TRUE(check_of_steep.beyond.empty());
  ASSERT_TRUE(check_of_steep.note);
  EXPECT_NE(check_of_steep.note->find("(grad of w)"), std::string::npos) << *check_of_steep.note;
}

TEST(Rounding, ExplainsNoMore) {
  EXPECT_EQ(check(1.0, 1e-3).beyond.size(), 1U) << "a gradient that rounding hardly changes";
  EXPECT_EQ(check(1e5, 1e9).beyond.size(), 1U) << "an error much larger than rounding";
  EXPECT_FALSE(check(1.0, 1e-3).note);
}

TEST(Rounding, LeavesOtherMismatchesAndNaN) {
  const std::vector<c10::IValue> arguments = {at::linspace(1, 2, 4)};
  const std::vector<Mismatch> mismatches = {{"grad of w", "shape is [4] instead of [3]", {}, {}, {}},
                                            {"grad of other", "1 of 4 elements differ", 1e-3, 1e-3, {0}},
                                            off_by(std::numeric_limits<double>::quiet_NaN())};
  EXPECT_EQ(check_rounding(mismatches, sine_of(1e5), "forward", arguments, 0).beyond.size(), 3U);
}

}  // namespace
}  // namespace sconce::cli
