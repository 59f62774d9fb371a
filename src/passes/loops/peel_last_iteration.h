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
// What the iterations before compute is then not a result of the loop. Returns whether the graph changed.
bool peel_last_iteration(Node& loop);

}  // namespace sconce
