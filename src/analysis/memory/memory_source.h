// Where the memory of a recording's values comes from. A recording has neither loops nor branches.
#pragma once

#include "ir/graph.h"

#include <cstddef>
#include <vector>

namespace sconce {

// Returns the operand whose memory the value may have: what a view is of, and for a list and its elements the list's first
// element. Returns null for an input and for a new tensor.
const Value* source_of_memory(const Value& value);

// Returns the value that is reached by `source_of_memory`: an input, or a tensor that an operator has made.
const Value& base_of_memory(const Value& value);

// Returns the positions of the recording's inputs whose memory it writes, in ascending order.
std::vector<size_t> written_inputs(const Graph& recording);

}  // namespace sconce
