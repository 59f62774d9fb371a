// Checksums: the elements of a tensor as they were, to be compared in parts.
#pragma once

#include <c10/core/TensorImpl.h>

#include <cstdint>
#include <vector>

namespace sconce {

// One number for each block of a dense tensor of float32. A change of one element changes the number. Changes of several
// elements may cancel out, but that is very unlikely.
class Checksums {
 public:
  static constexpr int64_t kElements = 64;  // of a block

  Checksums() = default;
  explicit Checksums(const c10::TensorImpl& tensor);

  int64_t blocks() const { return static_cast<int64_t>(sums_.size()); }
  // Returns whether the blocks from `first` up to `last` have the elements that they had.
  bool are_still(const c10::TensorImpl& tensor, int64_t first, int64_t last) const;

 private:
  std::vector<uint64_t> sums_;  // by block
};

}  // namespace sconce
