// Calls that LibTorch's kernels get wrong, to be met before the kernel sees them.
#pragma once

#include "ops/op.h"

#include <ATen/core/ivalue.h>

namespace sconce {

// Returns whether the call divides integers that have no quotient, so that LibTorch's kernel ends the process.
bool division_traps(const Op& op, c10::ArrayRef<c10::IValue> arguments);

// Returns whether the call is a copy by `aten::to.prim_*` that names neither dtype nor device: LibTorch's kernel then reads
// a dtype that is not there. It means a copy of the same dtype on the same device.
bool copies_by_reading_no_dtype(const Op& op, c10::ArrayRef<c10::IValue> arguments);

// Returns whether an integer that stands for a dtype stands for none. LibTorch reads memory outside of a table then. A model
// may have such a call where no run gets to it.
bool has_unknown_dtype(const Op& op, c10::ArrayRef<c10::IValue> arguments);

}  // namespace sconce
