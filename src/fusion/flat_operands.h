// Flat operands: tensors that a kernel may take for rows of elements, whatever their sizes.
#pragma once

#include "plan/prepared/group.h"

namespace sconce {

// Returns whether all tensors among the operands are dense and lie alike in memory, and the group makes no tensors: then it
// does to each element what it does to the others of the same number.
bool are_flat(const NodeGroup& group, const KernelArguments& arguments);

}  // namespace sconce
