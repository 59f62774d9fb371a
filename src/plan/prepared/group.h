// Groups: what a kernel node (ir/kernel_node.h) gives to the kernel that computes it.
#pragma once

#include "ir/kernel_node.h"
#include "plan/prepared/kernel.h"

#include <string>
#include <vector>

namespace sconce {

struct NodeGroup {
  std::vector<const Node*> nodes;      // in the order of the graph
  std::vector<const Value*> operands;  // tensors and numbers from outside that are not constants
  std::vector<const Value*> results;   // what the block returns

  // The group writes a tensor from outside in place.
  struct Write {
    size_t operand;      // the position of the tensor among the operands
    const Value* value;  // what the last of these nodes returns: the tensor as the kernel leaves it
    uint32_t count;      // of these nodes
  };
  std::vector<Write> writes;
};

// Returns the nodes of a kernel node, in its block.
NodeGroup group_of(const Node& kernel);

// Returns "mul add sigmoid".
std::string names_of(const NodeGroup& group);

// Makes the kernels of groups. Implemented above the plan (fusion/).
class GroupCompiler {
 public:
  virtual ~GroupCompiler() = default;
  // Returns the device on which the kernels find their operands and results.
  virtual c10::Device device() const = 0;
  // Returns whether the group's kernel may compute rows of a product before others are known.
  virtual bool may_take_rows(const NodeGroup& /*group*/) const { return false; }
  // Returns a kernel whose arguments are the group's operands, and whose results are the group's. `group` outlives it.
  virtual KernelPtr make_kernel(const NodeGroup& group) const = 0;
};

}  // namespace sconce
