// Completes what facts tell of devices.
#pragma once

#include "ir/graph.h"

#include <c10/core/Device.h>

namespace sconce {

// Sets the device of tensors whose facts do not have it: that of the operands, where the operator computes there; for
// tensors that come from outside, such as elements of lists and dicts, `assumed`. Looks into lists, branches and loops.
//
// Only for the last pass: a wrong device costs a capture, because a captured node asks in each run where its operands lie.
void complete_devices(Graph& graph, c10::Device assumed);

}  // namespace sconce
