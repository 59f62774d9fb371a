// What a method does to its arguments that no recorded step repeats.
#pragma once

#include "ir/graph.h"

namespace sconce {

// Returns why calls of the method cannot be recorded with other tensors in the place of its arguments: it may change a list
// or a dict that it is given, or the sizes or strides of a tensor. Null if it does neither; it may write elements of
// tensors.
const char* why_arguments_may_change(const Graph& graph);

}  // namespace sconce
