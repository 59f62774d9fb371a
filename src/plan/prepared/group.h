// Groups: adjacent nodes that one kernel may compute.
#pragma once

#include "ir/graph.h"
#include "plan/prepared/kernel.h"

#include <vector>

namespace sconce {

struct NodeGroup {
  std::vector<const Node*> nodes;      // in the order of the graph; what unpacks a list of views, too
  std::vector<const Value*> operands;  // tensors and numbers from outside that are not constants
  std::vector<const Value*> results;   // tensors that nodes outside use
};

// What a kernel can do with a node.
enum class GroupRole : uint8_t {
  kNone,       // nothing; or its result may share memory with an operand, and it is no view that kernels read through
  kPointwise,  // computes it, element by element
  kFold,       // computes it: it folds rows
  kView,       // reads through it, if no fold is computed before: the view picks elements of its first operand
  kCopy,       // computes it where the operator copies what a view reads; they are a group of their own
};

// Makes the kernels of groups. Implemented above the plan (fusion/).
class GroupCompiler {
 public:
  virtual ~GroupCompiler() = default;
  virtual GroupRole role_of(const Node& node) const = 0;
  // Returns a kernel whose arguments are the group's operands, and whose results are the group's. `group` outlives it.
  virtual KernelPtr make_kernel(const NodeGroup& group) const = 0;
};

}  // namespace sconce
