// How far rounding alone moves a model's gradients.
#pragma once

#include "tools/sconce/values/compare.h"

#include <torch/csrc/jit/api/module.h>

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace sconce::cli {

struct RoundingCheck {
  std::vector<Mismatch> beyond;     // that rounding does not explain
  std::optional<std::string> note;  // how far the others are from LibTorch's, and these from themselves
};

// Deep networks magnify rounding: gradients of two correct executions may differ by more than any fixed tolerance. Rounding
// explains a mismatch of a gradient if it is at most four times as large as what LibTorch's own gradient changes by when the
// elements of the floating-point arguments move by one unit in the last place, up or down at random. (sconce rounds in
// every operator, and not only once.)
//
// `mismatches`: of gradients_of_call, in a call of the method with the arguments and the seed.
RoundingCheck check_rounding(std::vector<Mismatch> mismatches, const torch::jit::Module& reference,
                             const std::string& method, const std::vector<c10::IValue>& arguments, uint64_t seed);

}  // namespace sconce::cli
