// Plans of prepared steps for functions in TorchScript, and what is compared of their results.
#pragma once

#include "load/compile_op_row.h"
#include "lower/lower.h"
#include "passes/simplify/propagate_constants.h"
#include "plan/run_plan.h"

#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include <memory>
#include <string>
#include <vector>

namespace sconce::testing {

using Shape = std::vector<int64_t>;

// Returns "[2, 3, ]", as TorchScript reads it.
inline std::string list_of(const Shape& numbers) {
  std::string text = "[";
  for (const int64_t number : numbers) {
    text += std::to_string(number) + ", ";
  }
  return text + "]";
}

inline std::unique_ptr<Plan> function_by_plan(const std::string& source, bool is_prepared) {
  auto graph = compile_function("function", source);
  propagate_constants(*graph);
  return std::move(*lower(std::move(graph), nullptr, nullptr, LoweringOptions{.is_prepared = is_prepared}));
}
inline std::unique_ptr<Plan> prepared_function(const std::string& source) { return function_by_plan(source, true); }
// Of LibTorch's operators.
inline std::unique_ptr<Plan> plain_function(const std::string& source) { return function_by_plan(source, false); }

inline c10::IValue run(const Plan& plan, torch::jit::Stack arguments) {
  run_plan(plan, arguments, AutogradUse::kNone);
  return arguments.at(0);
}

// None for an undefined tensor.
inline c10::IValue optional(const at::Tensor& tensor) { return tensor.defined() ? c10::IValue(tensor) : c10::IValue(); }

// Compares values, NaN included, sizes and strides.
inline void expect_alike(const at::Tensor& got, const at::Tensor& expected, const std::string& what) {
  EXPECT_EQ(got.sizes(), expected.sizes()) << what;
  EXPECT_EQ(got.strides(), expected.strides()) << what;
  EXPECT_TRUE(at::allclose(got, expected, 1e-4, 1e-4, /*equal_nan=*/true))
      << what << ": differs by " << (got - expected).abs().max().item<double>();
}

}  // namespace sconce::testing
