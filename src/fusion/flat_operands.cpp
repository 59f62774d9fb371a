#include "fusion/flat_operands.h"

namespace sconce {

bool are_flat(const NodeGroup& group, const KernelArguments& arguments) {
  const at::Tensor* first = nullptr;
  for (size_t i = 0; i < group.operands.size(); ++i) {
    if (!arguments.is_tensor(i)) {
      continue;
    }
    const at::Tensor& tensor = arguments.tensor(i);
    first = first == nullptr ? &tensor : first;
    if (!tensor.is_non_overlapping_and_dense() || tensor.sizes() != first->sizes() || tensor.strides() != first->strides()) {
      return false;
    }
  }
  return group.results.empty() && first != nullptr;
}

}  // namespace sconce
