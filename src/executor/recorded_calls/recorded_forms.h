// recorded_forms: backward of a recorded call where some of its results have no gradient.
#pragma once

#include "ir/graph.h"
#include "passes/required/specialize_backward.h"

#include <memory>
#include <vector>

namespace sconce {

// Returns the graph of runs in which some gradients are undefined. `backward`: of runs in which all are defined; its first
// inputs are the gradients. A value computed only from undefined gradients is undefined; a sum with one undefined operand is
// its other operand. Returns null if the graph does not say what LibTorch computes: an operator takes gradients of both
// kinds, or writes memory that backward did not allocate.
//
//   %a = mul(%dy, %w)                  %dz is undefined:     %a = mul(%dy, %w)
//   %b = neg(%dz)                                            return (%a, undefined)
//   %dx = add(%a, %b)
//   return (%dx, %b)
std::unique_ptr<Graph> backward_of_form(const Graph& backward, const std::vector<Definedness>& gradients);

}  // namespace sconce
