// What the analyses of src/ir/ say about a graph's memory, held against what a run of the graph did.
#pragma once

#include "tests/support/memory_recorder.h"

#include "ir/graph.h"

#include <string>
#include <vector>

namespace sconce::testing {

enum class Autograd { kOff, kOn };

// What is wrong, one line each:
//   - values that held the same memory at any time of the run lie in one set of AliasSets, and what a container held lies in
//     the contents of its set,
//   - a node that changed memory has the memory's set among sets_written_by, and effects that say so,
//   - a value whose memory outlives the run escapes (find_escaping_values),
//   - without autograd: a value that the run made, and that outlives it, may leave (may_escape).
// `autograd`: whether the run may have saved operands and results for a backward pass.
std::vector<std::string> wrong_claims(const Graph& graph, const RecordedRun& run, Autograd autograd);

// The values of a graph in program order.
std::vector<const Value*> values_in_order(const Graph& graph);

// "%x (aten::relu)".
std::string describe(const Value& value);

}  // namespace sconce::testing
