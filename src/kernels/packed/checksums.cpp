#include "kernels/packed/checksums.h"

#include <algorithm>
#include <cstring>

namespace sconce {
namespace {

// Sums of products with odd numbers that depend on the position: each bit of an element counts.
uint64_t checksum_of(const char* elements, int64_t count) {
  constexpr uint64_t kStep = 0x9e3779b97f4a7c16;  // even, so that all factors are odd
  uint64_t sum = 0;
  uint64_t factor = 1;
  for (int64_t i = 0; i < count; ++i, factor += kStep) {
    uint32_t bits = 0;
    std::memcpy(&bits, elements + i * static_cast<int64_t>(sizeof(bits)), sizeof(bits));
    sum += bits * factor;
  }
  return sum;
}

uint64_t checksum_of_block(const c10::TensorImpl& tensor, int64_t block) {
  const int64_t first = block * Checksums::kElements;
  return checksum_of(static_cast<const char*>(tensor.data()) + first * static_cast<int64_t>(sizeof(uint32_t)),
                     std::min(Checksums::kElements, tensor.numel() - first));
}

}  // namespace

Checksums::Checksums(const c10::TensorImpl& tensor)
    : sums_(static_cast<size_t>((tensor.numel() + kElements - 1) / kElements)) {
  for (int64_t block = 0; block < blocks(); ++block) {
    sums_[static_cast<size_t>(block)] = checksum_of_block(tensor, block);
  }
}

bool Checksums::are_still(const c10::TensorImpl& tensor, int64_t first, int64_t last) const {
  for (int64_t block = first; block < last; ++block) {
    if (checksum_of_block(tensor, block) != sums_[static_cast<size_t>(block)]) {
      return false;
    }
  }
  return true;
}

}  // namespace sconce
