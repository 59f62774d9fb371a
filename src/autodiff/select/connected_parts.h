// Splits a slice into the parts that become autograd nodes.
#pragma once

#include "ir/graph.h"

#include <vector>

namespace sconce {

// A node of a slice that is being formed.
struct SliceMember {
  Node* node;
  bool is_differentiated;  // a gradient flows through it; else it is auxiliary
  bool is_kept;            // stays, wherever it stands: it is differentiated, or makes a list that the slice joins
};
using SliceMembers = std::vector<SliceMember>;

// Splits the slice into components that share no values but those of auxiliary nodes:
//
//   %a = tanh(%x)   %b = exp(%y)        In one autograd node, backward of %c would also traverse what %y is computed from,
//   %c = relu(%a)   %d = neg(%b)        which eager execution does not: it would write y.grad, run its hooks and raise its
//                                       errors.
//
// An auxiliary member is free if it could run before the slice: it has no effects, and all its operands come from outside or
// from other free members. What free members compute for one part only is in that part. What they compute for several parts,
// or for none, is in none and runs where it stands.
//
// Members that draw random numbers stay in one part, in their order. A slice that writes memory stays whole. The parts are
// in the order of their last members that are not free; the members of a part in program order.
std::vector<SliceMembers> connected_parts(const SliceMembers& slice);

}  // namespace sconce
