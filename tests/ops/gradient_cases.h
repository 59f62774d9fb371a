// Calls of operators whose rows have gradients: the lines of tests/ops/gradients/*.cases.
#pragma once

#include "tests/support/operator_cases.h"

#include "base/exception_message.h"
#include "load/compile_op_row.h"

#include <ATen/core/ivalue.h>

#include <gtest/gtest.h>

#include <cstdint>
#include <exception>
#include <string>
#include <vector>

namespace sconce::testing {

using GradientCase = OperatorCase;

const std::vector<GradientCase>& gradient_cases();

// Calls `check` with every case and each of the sizes. What it throws is a failure of the case.
template <typename Check>
void for_every_case(const Check& check, const std::vector<int64_t>& sizes = {2, 5}) {
  for (const GradientCase& each : gradient_cases()) {
    for (const int64_t n : sizes) {
      try {
        check(each, n);
      } catch (const std::exception& error) {
        ADD_FAILURE() << each.text << ", n = " << n << ": " << sconce::message_of(error);
      }
    }
  }
}

// Returns the rule of the row of a call's operator (load/compile_op_row.h), or the one that is recorded for calls like this
// if the row allows it. Null if there is none.
const OpGradient* rule_of(const Op& op, const Values& arguments);

// The positions of the tensors that autograd lets require a gradient.
std::vector<size_t> differentiable_positions(const Op& op, const Values& arguments);

// The seed of the random numbers that operators draw.
inline constexpr uint64_t kOperatorSeed = 7;

// Runs the operator, with the random numbers of that seed. Writes what the operator writes.
Values call_operator(const Op& op, const Values& arguments);

// What a forward pass leaves for backward.
struct ForwardPass {
  Values results;
  Values saved;
};

// Runs the rule's forward, or the operator if it has none, with the same random numbers as `call_operator`.
ForwardPass run_forward(const Op& op, const Values& arguments);

// Returns the gradient of each argument, undefined where there is none, summed to the argument's sizes and cast to its
// dtype, as differentiation does. There is a rule. `needed` are the positions of the arguments whose gradients
// are asked for; gradients of others are undefined. `records`: whether autograd records what backward computes.
std::vector<at::Tensor> run_backward(const Op& op, const Values& arguments, const ForwardPass& forward,
                                     const std::vector<at::Tensor>& grads, const std::vector<size_t>& needed,
                                     bool records = false);

// The positions of tensors that can require a gradient.
std::vector<size_t> floating_positions(const Values& values);

}  // namespace sconce::testing
