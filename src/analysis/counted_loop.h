// Loops whose number of iterations is known before they run.
#pragma once

#include "ir/constant_operands.h"
#include "ir/graph.h"

namespace sconce {

// Returns whether the loop runs as many iterations as its first input says: its conditions are constant and true.
inline bool is_counted_loop(const Node& loop) {
  return constant_bool(*loop.input(1)) == true && constant_bool(*loop.block(0)->returns()[0]) == true;
}

}  // namespace sconce
