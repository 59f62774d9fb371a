// Derives the facts of an operator's results from those of its operands.
#pragma once

#include "ir/graph.h"
#include "shapes/abstract_value.h"
#include "shapes/size_arithmetic.h"

namespace sconce {

// Returns one value per output of the node, unknown where nothing can be derived. Lists in `operands` are given as their
// elements.
//
// Dtype, device and rank come from running the operator on meta tensors, with examples for symbols and arbitrary numbers of
// the right kind for unknown ones. If every size is a number, sizes and strides come from that run. Otherwise sizes come
// from LibTorch's shape function, or from the rule that all pointwise operators share.
//
// Requires: a schema. The facts assume the current default dtype and no autocast.
AbstractValues operator_facts(const Node& node, const AbstractValues& operands, SizeArithmetic& arithmetic);

}  // namespace sconce
