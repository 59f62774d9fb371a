// Sums that loops add up, as backward graphs have them:
//
//   %zero : Tensor = prim::AutogradZero()
//   %all : Tensor = prim::Loop(%n, %true, %zero)
//     block0(%i : int, %sum : Tensor):
//       %part : Tensor = …
//       %next : Tensor = prim::AutogradAdd(%sum, %part)
//       -> (%true, %next)
#pragma once

#include "ir/graph.h"

#include <vector>

namespace sconce {

struct CarriedSum {
  size_t position;  // among the loop's outputs
  Node* part;       // in the loop's body
};

// Returns the sums of the loop whose parts nothing else reads.
std::vector<CarriedSum> carried_sums(const Node& loop);

// Returns whether a node in the loop's body makes the value.
bool is_made_in_body(const Value& value, const Node& loop);

}  // namespace sconce
