#include "fusion/program/written_memory.h"

#include <algorithm>

namespace sconce {
namespace {

// Strides are never negative.
size_t bytes_between_ends(const at::Tensor& tensor) {
  int64_t last = 0;
  for (int64_t dim = 0; dim < tensor.dim(); ++dim) {
    last += (tensor.size(dim) - 1) * tensor.stride(dim);
  }
  return tensor.numel() == 0 ? 0 : static_cast<size_t>(last + 1) * tensor.element_size();
}

}  // namespace

WrittenMemory::WrittenMemory(const NodeGroup& group, const KernelArguments& arguments) {
  for (size_t i = 0; i < group.operands.size() && !group.writes.empty(); ++i) {
    const size_t bytes = arguments.is_tensor(i) ? bytes_between_ends(arguments.tensor(i)) : 0;
    if (bytes != 0) {
      const bool is_written = std::any_of(group.writes.begin(), group.writes.end(),
                                          [&](const NodeGroup::Write& write) { return write.operand == i; });
      tensors_.push_back({i, bytes, c10::elementSize(arguments.tensor(i).scalar_type()), is_written});
    }
  }
}

void WrittenMemory::set_elements(size_t elements) {
  for (Tensor& tensor : tensors_) {
    tensor.bytes = elements * tensor.element_bytes;
  }
}

bool WrittenMemory::overlaps(const KernelArguments& arguments) {
  const auto begin_of = [&](const Tensor& tensor) { return reinterpret_cast<uintptr_t>(arguments.data(tensor.position)); };
  const auto is_before = [&](const Tensor& a, const Tensor& b) { return begin_of(a) < begin_of(b); };
  if (!std::is_sorted(tensors_.begin(), tensors_.end(), is_before)) {
    std::sort(tensors_.begin(), tensors_.end(), is_before);
  }
  uintptr_t end = 0;  // of the tensors so far
  uintptr_t end_of_written = 0;
  return std::any_of(tensors_.begin(), tensors_.end(), [&](const Tensor& tensor) {
    const uintptr_t begin = begin_of(tensor);
    const bool is_shared = begin < end_of_written || (tensor.is_written && begin < end);
    end = std::max(end, begin + tensor.bytes);
    end_of_written = tensor.is_written ? std::max(end_of_written, begin + tensor.bytes) : end_of_written;
    return is_shared;
  });
}

}  // namespace sconce
