// The memory that a group writes in place.
#pragma once

#include "plan/prepared/group.h"

#include <vector>

namespace sconce {

// A kernel takes each operand for a tensor of its own. Where one that it writes shares memory with another, the operators
// must run, one by one; for some such operands LibTorch raises.
class WrittenMemory {
 public:
  WrittenMemory() = default;
  // For operands of these forms.
  WrittenMemory(const NodeGroup& group, const KernelArguments& arguments);
  // Sets how many elements each tensor has in the next runs, one next to the other.
  void set_elements(size_t elements);
  // Returns whether a tensor that the group writes may share memory with another operand of this run.
  bool is_shared(const KernelArguments& arguments) { return !tensors_.empty() && overlaps(arguments); }

 private:
  bool overlaps(const KernelArguments& arguments);
  struct Tensor {
    size_t position;  // among the arguments
    size_t bytes;     // from the first element to the end of the last
    size_t element_bytes;
    bool is_written;
  };
  std::vector<Tensor> tensors_;  // in the order of their addresses in the last run; none if nothing is written
};

}  // namespace sconce
