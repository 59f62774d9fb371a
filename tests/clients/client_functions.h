// Functions of clients on tensors: chains of operations, of which some cannot be recorded.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <string>
#include <vector>

namespace sconce::clients {

constexpr int64_t kWidth = 6;  // of all rows

// Tensors and memory that a function reads besides its arguments.
struct Captured {
  at::Tensor scale;          // a leaf, [kWidth]
  at::Tensor matrix;         // a leaf, [kWidth, kWidth]
  std::vector<float> table;  // of the program's own memory, kWidth numbers
};

uint32_t operation_count();
// Those that a plan repeats come first.
uint32_t recordable_operation_count();
std::string operation_name(uint32_t operation);
// Applies an operation to x: [n, kWidth]. `other` broadcasts to it. Returns a tensor of the same sizes.
at::Tensor apply_operation(uint32_t operation, const at::Tensor& x, const at::Tensor& other, const Captured& captured);

}  // namespace sconce::clients
