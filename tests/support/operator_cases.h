// Calls of operators with arguments that they take: the lines of *.cases files.
//
//   aten::add.Tensor(x([n, 3]), x([3]), 2)
//
// `n` is a size that the test chooses; what makes arguments is in operator_cases.cpp. Lines that begin with # are comments.
#pragma once

#include "autodiff/rules/call_pattern.h"
#include "ops/op.h"

#include <ATen/core/ivalue.h>

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

namespace torch::jit {
struct CompilationUnit;
}

namespace sconce::testing {

using Values = std::vector<c10::IValue>;

// One line: "aten::add.Tensor(x([n, 3]), x([3]), alpha)".
struct OperatorCase {
  const Op* op;
  std::string text;    // the line
  std::string family;  // the name of its file, without ".cases"
  // Makes the arguments, the schema's defaults included: new tensors of doubles, the same ones for the same size.
  Values arguments(int64_t n) const;

  std::shared_ptr<torch::jit::CompilationUnit> makers;
  std::string maker;  // the function of `makers` that makes the arguments
};

// Returns the pattern of a call: dtypes and ranks; sizes of 1 stay, others are open. `required`: the positions of the
// tensors that require a gradient.
CallPattern pattern_of(const Op& op, const Values& arguments, const std::vector<size_t>& required);

// Reads all files of the folder.
std::vector<OperatorCase> read_operator_cases(const std::string& folder);

}  // namespace sconce::testing
