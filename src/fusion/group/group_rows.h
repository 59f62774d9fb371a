// Groups that may run on parts of a product's result.
#pragma once

#include "plan/prepared/group.h"

namespace sconce {

// Returns whether the group may compute some rows without the others: it reduces no dimensions, and is no convolution with
// what clamps it. Whether it can is known when it is prepared (PreparedKernel::takes_rows).
bool may_take_rows(const NodeGroup& group);

}  // namespace sconce
