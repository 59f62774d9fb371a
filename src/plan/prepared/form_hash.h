// FormHash: a hash of what kernels and captures are made for.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>

namespace sconce {

// Equal hashes of different forms cost time only.
class FormHash {
 public:
  void add(uint64_t word) { hash_ = (hash_ ^ word) * 0x9E3779B97F4A7C15U + (hash_ >> 32); }
  // Adds dtype, device, sizes and strides. Adds nothing for undefined tensors and those without strides.
  void add(const at::Tensor& tensor) {
    if (!tensor.defined() || tensor.layout() != c10::kStrided) {
      return;
    }
    const c10::Device device = tensor.device();
    add(static_cast<uint64_t>(tensor.scalar_type()) | static_cast<uint64_t>(device.type()) << 8 |
        static_cast<uint64_t>(static_cast<uint8_t>(device.index())) << 16);
    for (const c10::IntArrayRef words : {tensor.sizes(), tensor.strides()}) {
      for (const int64_t word : words) {
        add(static_cast<uint64_t>(word));
      }
    }
  }
  // Returns the hash; never 0.
  uint64_t value() const { return hash_ == 0 ? 1 : hash_; }

 private:
  uint64_t hash_ = 1;
};

}  // namespace sconce
