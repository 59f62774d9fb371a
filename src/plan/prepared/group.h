// Groups: adjacent nodes that one kernel may compute.
#pragma once

#include "ir/graph.h"
#include "plan/prepared/kernel.h"

#include <vector>

namespace sconce {

struct NodeGroup {
  std::vector<const Node*> nodes;      // in the order of the graph
  std::vector<const Value*> operands;  // tensors and numbers from outside that are not constants
  std::vector<const Value*> results;   // tensors that nodes outside use
};

// Makes the kernels of groups. Implemented above the plan (fusion/).
class GroupCompiler {
 public:
  virtual ~GroupCompiler() = default;
  // Returns what the node adds to the size of a kernel: 1 for a pointwise operator; 0 if no kernel computes it, or if
  // its result may share memory with an operand.
  virtual size_t weight_of(const Node& node) const = 0;
  // Returns a kernel whose arguments are the group's operands, and whose results are the group's. `group` outlives it.
  virtual KernelPtr make_kernel(const NodeGroup& group) const = 0;
};

}  // namespace sconce
