// What torch::jit finds out about the same method, by its two ways: counted as our own claims are.
#pragma once

#include "tests/differential/facts_coverage.h"

#include <torch/csrc/jit/api/module.h>

#include <optional>
#include <string>
#include <vector>

namespace sconce::testing {

struct FactsOfLibtorch {
  Coverage profiled;    // two runs of the instrumented graph, whose profile becomes the types of values
  Coverage propagated;  // PropagateInputShapes, with complete types of all inputs and of the tensors among the attributes
};

// `arguments`: the module first. Nothing where the graph does not run on its own.
std::optional<FactsOfLibtorch> facts_of_libtorch(const torch::jit::Method& method, const std::vector<c10::IValue>& arguments,
                                                 uint64_t seed);

}  // namespace sconce::testing
