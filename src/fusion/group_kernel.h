// Kernels of groups of nodes: from live operands to compiled code.
#pragma once

#include "plan/prepared/group.h"

namespace sconce {

class KernelBackend;

// A kernel is prepared for operands of given dtypes, sizes and strides: it writes a program for each shape among the
// results, and takes its code from the back end's cache. Sizes are no part of a program, so one code serves all that
// have the same structure. Until the code is compiled, the nodes run one by one. The group and the back end must outlive it.
KernelPtr make_group_kernel(const NodeGroup& group, const KernelBackend& backend);

}  // namespace sconce
