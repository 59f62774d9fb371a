// Unrolls loops of unknown trip count by eight.
#pragma once

#include "ir/graph.h"

namespace sconce {

//   %r = prim::Loop(%n, %true, %a)           %rounds = aten::floordiv(max(%n, 0), 8)
//     block0(%i, %x):                    →   %q = prim::Loop[unrolled=8](%rounds, %true, %a)
//       …                                      block0(%round, %x):
//       -> (%true, %y)                           … eight times
//                                              -> (%true, %y8)
//                                            %r = prim::Loop[unrolled=8](max(%n, 0) - %rounds * 8, %true, %q)
//                                              … as before, the iterations counted from %rounds * 8
//
// Legal when the loop has no early exit. Done when its body has at most 32 nodes and its trip count is not a constant below
// eight. The attribute marks loops that this pass has unrolled. Returns whether the graph changed.
bool partially_unroll_loops(Graph& graph);

}  // namespace sconce
