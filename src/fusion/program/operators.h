// What operators compute for one element.
#pragma once

#include "fusion/program/rule_arguments.h"
#include "ir/graph.h"

#include <span>

namespace sconce {

// Returns whether some kernel may compute the operator, which returns a new tensor.
bool has_element_rule(const Op& op);
// Returns whether some kernel may compute the operator, which writes its first operand, and do the same to its memory.
bool may_write_in_place(const Op& op);
// Returns the operator that computes the same elements, by which rules and forms are found: of one that writes in place, the
// one that returns a new tensor; else the operator itself.
const Op& op_of_elements(const Op& op);

// Returns whether LibTorch makes a tensor of the number in this argument, so that it counts among the operands that decide
// the result's strides.
bool is_operand_of_iterator(const Op& op, size_t argument);
// What the strides of the result follow.
enum class ResultForm : uint8_t {
  kSame,              // the strides of the one operand, which is dense
  kOperands,          // those of the operands, the first one first
  kReversedOperands,  // the last one first
  kContiguous,
};
ResultForm result_form_of(const Op& op);

// Returns whether kernels compute the operator only of dense operands of equal sizes: for others LibTorch raises, or gives
// other strides.
bool needs_equal_operands(const Op& op);

// Returns whether the node casts its operand to a dtype that it is known not to have. Other casts may return the operand.
bool casts_to_other_dtype(const Node& node);

// Writes the operator. Returns the element of its result, in the result's dtype. Returns nothing if no kernel computes the
// operator for such arguments as LibTorch does.
std::optional<Element> write_operator(ProgramBuilder& builder, const Op& op, std::span<const ElementArgument> arguments);

}  // namespace sconce
