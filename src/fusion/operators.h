// What operators compute for one element.
#pragma once

#include "fusion/writing.h"
#include "ir/graph.h"

#include <span>

namespace sconce {

// Returns whether some kernel may compute the operator.
bool has_element_rule(const Op& op);

// Writes the operator. Returns the element of its result, in the result's dtype. Returns nothing if no kernel computes the
// operator for such arguments as LibTorch does.
std::optional<Element> write_operator(ProgramBuilder& builder, const Op& op, std::span<const ElementArgument> arguments);

}  // namespace sconce
