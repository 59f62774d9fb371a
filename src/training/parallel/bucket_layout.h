// BucketLayout: which gradients are reduced together.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

namespace sconce {

// Follows from the parameters alone, so that all ranks reduce the same buckets in the same order whatever program serves
// them. Backward computes the gradients of the last parameters first; so the first bucket has these.
struct BucketLayout {
  struct Member {
    size_t parameter;
    int64_t offset;  // of its first element in the bucket
  };
  struct Bucket {
    c10::ScalarType dtype;
    c10::Device device;
    std::vector<Member> members;
    int64_t size = 0;  // in elements
  };
  std::vector<Bucket> buckets;
  // In the last bucket, after its members: for each parameter, a number that is 0 if no rank has a gradient of it; then how
  // many ranks had a batch.
  int64_t first_flag = 0;

  // A bucket is closed once it has the bytes, the first one once it has `first_bytes`. Its tensors are of one dtype and
  // device. Each can be cut into `parts` of equal size.
  static BucketLayout of(const std::vector<at::Tensor>& parameters, size_t first_bytes, size_t bytes, int64_t parts);
};

// Returns "3 tensors in 2 buckets: Float[4,3] Float[4] Float[1]": what must be equal on all ranks.
std::string to_string(const BucketLayout& layout, const std::vector<at::Tensor>& parameters);

}  // namespace sconce
