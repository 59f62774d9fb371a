// Calls of operators whose rows have gradients: the lines of tests/ops/gradients/*.cases.
#pragma once

#include "base/exception_message.h"
#include "ops/op.h"

#include <ATen/core/ivalue.h>

#include <gtest/gtest.h>

#include <cstdint>
#include <exception>
#include <string>
#include <vector>

namespace sconce::testing {

using Values = std::vector<c10::IValue>;

// One line: "aten::add.Tensor(x([n, 3]), x([3]), alpha)", where `n` is a size that the test chooses.
struct GradientCase {
  const Op* op;
  std::string text;    // the line
  std::string family;  // the name of its file, without ".cases"
  // Makes the arguments, the schema's defaults included: new tensors of doubles, the same ones for the same size.
  Values arguments(int64_t n) const;
};

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

// Runs the operator, with the random numbers of one fixed seed. Writes what the operator writes.
Values call_operator(const Op& op, const Values& arguments);

// What a forward pass leaves for backward.
struct ForwardPass {
  Values results;
  Values saved;
};

// Runs the row's forward text, or the operator if there is none, with the same random numbers as `call_operator`.
ForwardPass run_forward(const Op& op, const Values& arguments);

// Returns the gradient of each argument, undefined where there is none, summed to the argument's sizes and cast to its
// dtype, as differentiation does. `needed` are the positions of the arguments whose gradients are asked for; gradients of
// others are undefined.
std::vector<at::Tensor> run_backward(const Op& op, const Values& arguments, const ForwardPass& forward,
                                     const std::vector<at::Tensor>& grads, const std::vector<size_t>& needed);

// The positions of tensors that can require a gradient.
std::vector<size_t> floating_positions(const Values& values);

}  // namespace sconce::testing
