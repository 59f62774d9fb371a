// Operands for running an operator on tensors without elements: meta tensors, or empty ones.
#pragma once

#include "shapes/abstract_value.h"
#include "shapes/size_arithmetic.h"

#include <ATen/core/ivalue.h>
#include <ATen/core/jit_type_base.h>

#include <cstdint>
#include <optional>
#include <utility>
#include <vector>

namespace sconce {

// Makes operands, one at a time, and tracks how far the results of the run can be trusted. On a device other than `meta` the
// tensors are empty, so their sizes mean nothing. Sparse tensors can only be made empty.
class MetaOperands {
 public:
  // `ranks`: for tensors whose ranks are not known, in the order in which they are made. `has_equal_sizes`: all
  // sizes are one number, of which no kernel makes an exception.
  MetaOperands(SizeArithmetic& arithmetic, c10::DeviceType device, std::vector<int64_t> ranks, bool has_equal_sizes)
      : arithmetic_(arithmetic), device_(device), has_equal_sizes_(has_equal_sizes), ranks_(std::move(ranks)) {}

  // Makes an operand; lists in `value` are given as their elements. Nothing if it cannot be made.
  std::optional<c10::IValue> make(const AbstractValue& value, const c10::Type& type);

  // Returns whether every size and number so far is that of a real run.
  bool sizes_are_exact() const { return sizes_are_exact_; }
  // The same for bools alone, and for all numbers that no size of a tensor tells.
  bool booleans_are_exact() const { return booleans_are_exact_; }
  bool numbers_are_exact() const { return booleans_are_exact_ && numbers_are_exact_; }
  // The same for how many numbers lists have.
  bool lists_are_exact() const { return lists_are_exact_; }
  // The same for strides.
  bool strides_are_exact() const { return sizes_are_exact_ && strides_are_exact_; }

 private:
  std::optional<c10::IValue> stand_in(const c10::Type& type);
  std::optional<c10::IValue> meta_tensor(const TensorFacts& facts);
  std::optional<at::Tensor> tensor_like(const TensorFacts& facts);

  SizeArithmetic& arithmetic_;
  const c10::DeviceType device_;
  const bool has_equal_sizes_;
  std::vector<int64_t> ranks_;
  size_t ranks_used_ = 0;
  bool sizes_are_exact_ = true;
  bool booleans_are_exact_ = true;
  bool lists_are_exact_ = true;
  bool numbers_are_exact_ = true;
  bool strides_are_exact_ = true;
};

}  // namespace sconce
