// Loops whose number of iterations only a run knows, by eight iterations at a time.
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
// where the loop cannot end before, its body is of at most 32 nodes, and the number of iterations is not a constant below
// eight. The attribute says that the loop has been through this.
bool partially_unroll_loops(Graph& graph);

}  // namespace sconce
