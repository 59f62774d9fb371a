// The facts of an operator's results, from those of its operands.
#pragma once

#include "ir/graph.h"
#include "shapes/abstract_value.h"
#include "shapes/size_arithmetic.h"

namespace sconce {

// One value per output of the node; unknown where nothing is. `operands`: elements in the place of lists.
//
// Dtype, device and rank come from a run of the operator on meta tensors, which have no memory: symbols stand for their
// examples there, and numbers of the run, whose kind alone matters, for any. Where every size is a number the sizes and
// strides are that run's, too. Else sizes come from LibTorch's shape function, or from the rule that all pointwise operators
// share.
//
// Requires: a schema. The facts hold for the default dtype of now, and outside of autocast.
AbstractValues operator_facts(const Node& node, const AbstractValues& operands, SizeArithmetic& arithmetic);

}  // namespace sconce
