// The last iteration of a loop, after the loop.
#pragma once

#include "ir/graph.h"

namespace sconce {

// Takes the last iteration out of a loop whose number of iterations is given:
//
//   %y = prim::Loop(%n, %true, %x)        %z = prim::Loop(%n - 1, %true, %x)
//     block0(%i, %a): … -> (%true, %b)  →   block0(%i, %a): … -> (%true, %b)
//                                          %y = prim::If(%n > 0)
//                                            block0(): (the body of %n - 1 and %z) -> (%b)
//                                            block1(): -> (%x)
//
// The caller sees the results of the last iteration alone; those of the others stay inside. Returns whether the graph
// changed.
bool peel_last_iteration(Node& loop);

}  // namespace sconce
