// Which part of a joint graph runs forward, and which backward.
#pragma once

#include "autodiff/joint/joint_graph.h"

#include <unordered_set>

namespace sconce {

//   %a = tanh(%x * %w)           forward                  saved: %a, which both need
//   %n = size(%x)                forward                  saved: %n, rather than %x for its sizes alone
//   %v = transpose(%w)           forward and backward     saved: %w, an input; the view costs nothing again
//   %c = 1 - %a * %a             backward                 only the gradient needs it
//   %d = %grad * %c              backward                 depends on a gradient
//
// A node of a recording stays in the phase in which it ran, since it may read what a later one writes.
struct Partition {
  std::unordered_set<const Node*> forward;
  std::unordered_set<const Node*> backward;  // a node in both is computed again
  std::unordered_set<const Value*> saved;    // inputs and results of forward that backward reads
};

Partition partition(const JointGraph& joint);

}  // namespace sconce
