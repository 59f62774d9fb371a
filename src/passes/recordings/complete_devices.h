// Completes what facts tell of devices.
#pragma once

#include "ir/graph.h"

namespace sconce {

// Sets the device of tensors whose facts do not have it, where the operator computes on the device of its operands. Looks into
// lists, branches and loops. For passes that run last: a wrong device would only cost a recording.
void complete_devices(Graph& graph);

}  // namespace sconce
