// Operators that write in place, and the ones that return a new tensor instead.
#pragma once

#include "ops/op.h"

namespace sconce {

// Returns the operator that returns as a new tensor what `op` writes into its first argument: aten::relu_ → aten::relu. It
// has the name without the `_`, the same overload and the same other arguments. Null when there is none, and when `op`
// writes or returns anything else. Searches LibTorch's registry in each call. See Op::functional, which also minds autocast.
const Op* find_out_of_place(const Op& op);

}  // namespace sconce
