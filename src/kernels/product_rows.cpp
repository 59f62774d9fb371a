#include "kernels/product_rows.h"

#include "kernels/loops/transpose.h"

#include <c10/core/CPUAllocator.h>

#include <cstring>

namespace sconce {
namespace {

// Returns the distance at which all rows lie, if it is one for all.
std::optional<int64_t> even_stride(const at::Tensor& operand) {
  const int64_t columns = operand.sizes().back();
  if (columns > 1 && operand.strides().back() != 1) {
    return std::nullopt;
  }
  std::optional<int64_t> stride;
  int64_t next = 0;  // of the dimension in front
  for (int64_t dim = operand.dim() - 2; dim >= 0; --dim) {
    if (operand.size(dim) == 1) {
      continue;
    }
    if (stride && operand.stride(dim) != next) {
      return std::nullopt;
    }
    stride = stride.value_or(operand.stride(dim));
    next = operand.stride(dim) * operand.size(dim);
  }
  return stride.value_or(columns) >= columns ? std::optional(stride.value_or(columns)) : std::nullopt;
}

}  // namespace

std::optional<ProductRows> ProductRows::of(const at::Tensor& operand) {
  ProductRows rows;
  rows.columns_ = operand.sizes().back();
  rows.count_ = operand.numel() / rows.columns_;
  if (const auto stride = even_stride(operand)) {
    rows.stride_ = *stride;
    return rows;
  }
  if (operand.dim() < 2) {
    return std::nullopt;
  }
  rows.stride_ = rows.columns_;
  rows.rows_ = operand.size(-2);
  rows.row_stride_ = operand.stride(-2);
  rows.is_transposed_ = rows.row_stride_ == 1 && operand.stride(-1) == rows.rows_;
  if (!rows.is_transposed_ && operand.stride(-1) != 1) {
    return std::nullopt;
  }
  rows.matrices_ = offsets_of_matrices(operand, operand.dim() - 2);
  rows.copy_ = c10::GetDefaultCPUAllocator()->allocate(static_cast<size_t>(operand.numel()) * sizeof(float));
  return rows;
}

const float* ProductRows::get(const float* operand) const {
  if (!are_copied()) {
    return operand;
  }
  auto* const copy = static_cast<float*>(copy_.get());
  float* out = copy;
  for (const ptrdiff_t offset : matrices_) {
    if (is_transposed_) {
      transpose(operand + offset, rows_, columns_, rows_, out, columns_);
    }
    for (int64_t row = 0; row < rows_ && !is_transposed_; ++row) {
      std::memcpy(out + row * columns_, operand + offset + row * row_stride_, static_cast<size_t>(columns_) * sizeof(float));
    }
    out += rows_ * columns_;
  }
  return copy;
}

std::vector<ptrdiff_t> offsets_of_matrices(const at::Tensor& tensor, int64_t rank) {
  std::vector<ptrdiff_t> offsets = {0};
  for (int64_t dim = 0; dim < rank; ++dim) {
    std::vector<ptrdiff_t> next;
    for (const ptrdiff_t offset : offsets) {
      for (int64_t i = 0; i < tensor.size(dim); ++i) {
        next.push_back(offset + i * tensor.stride(dim));
      }
    }
    offsets = std::move(next);
  }
  return offsets;
}

}  // namespace sconce
