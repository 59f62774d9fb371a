// What operators compute for one element.
#pragma once

#include "fusion/program_builder.h"
#include "ir/graph.h"

#include <span>

namespace sconce {

// An argument of an operator in a group.
struct ElementArgument {
  enum class Kind : uint8_t {
    kTensor,    // `value`, an element of a tensor
    kNumber,    // `value`, a number that each call gives
    kConstant,  // `constant`: a number, a dtype, None, …
  };
  Kind kind = Kind::kConstant;
  Element value;
  bool is_zero_dim = false;  // a tensor without dimensions: its dtype counts less (type promotion)
  c10::IValue constant;
};

// Returns whether some kernel may compute the operator.
bool has_element_rule(const Op& op);

// Writes the operator. Returns the element of its result, in the result's dtype. Returns nothing if no kernel computes the
// operator for such arguments as LibTorch does.
std::optional<Element> write_operator(ProgramBuilder& builder, const Op& op, std::span<const ElementArgument> arguments);

}  // namespace sconce
