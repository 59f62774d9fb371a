// Operands for a run of an operator on tensors that cost nothing: meta tensors, which have no memory, or empty ones.
#pragma once

#include "shapes/abstract_value.h"
#include "shapes/size_arithmetic.h"

#include <ATen/core/ivalue.h>
#include <ATen/core/jit_type_base.h>

#include <optional>

namespace sconce {

// Makes operands one after the other, and tells how far the results can be trusted. Tensors have no memory, or, on another
// device than `meta`, no elements: their sizes tell nothing then. Sparse ones can be made empty only.
class MetaOperands {
 public:
  MetaOperands(SizeArithmetic& arithmetic, c10::DeviceType device) : arithmetic_(arithmetic), device_(device) {}

  // `value`: elements in the place of lists. Nothing where it cannot be made.
  std::optional<c10::IValue> make(const AbstractValue& value, const c10::Type& type);

  // Whether every size and number so far is that of the run.
  bool sizes_are_exact() const { return sizes_are_exact_; }
  // And every stride.
  bool strides_are_exact() const { return sizes_are_exact_ && strides_are_exact_; }

 private:
  std::optional<c10::IValue> stand_in(const c10::Type& type);
  std::optional<c10::IValue> meta_tensor(const TensorFacts& facts);

  SizeArithmetic& arithmetic_;
  const c10::DeviceType device_;
  bool sizes_are_exact_ = true;
  bool strides_are_exact_ = true;
};

}  // namespace sconce
