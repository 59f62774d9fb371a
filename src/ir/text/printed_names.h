// The names that values have in the text of their graph.
#pragma once

#include "ir/graph.h"

#include <c10/util/ArrayRef.h>

#include <string>
#include <vector>

namespace sconce {

// Returns the names of the graph's values as `print(graph)` has them, "%x.2", where values of one name differ in their
// suffix.
std::vector<std::string> printed_names(const Graph& graph, c10::ArrayRef<const Value*> values);

}  // namespace sconce
