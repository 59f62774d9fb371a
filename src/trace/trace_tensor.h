// TraceTensor: a tensor whose operators a tracer writes down.
#pragma once

#include <ATen/core/Tensor.h>
#include <c10/core/TensorImpl.h>

#include <cstdint>
#include <memory>
#include <vector>

namespace sconce {

class Value;

// Sizes and strides of which later runs may have others.
struct SymbolicGeometry {
  std::vector<c10::SymInt> sizes;
  std::vector<c10::SymInt> strides;
  c10::SymInt offset;  // in the storage
};

// While one lives, nothing follows from the sizes that its thread reads as plain numbers: they are no guards.
class IgnoredSizes {
 public:
  IgnoredSizes();
  ~IgnoredSizes();
  IgnoredSizes(const IgnoredSizes&) = delete;
  IgnoredSizes& operator=(const IgnoredSizes&) = delete;

 private:
  const bool outer_;
};

// Code of this thread that reads how many elements a tensor has asks whether it has any.
class NumelAsksWhetherEmpty {
 public:
  NumelAsksWhetherEmpty();
  ~NumelAsksWhetherEmpty();
  NumelAsksWhetherEmpty(const NumelAsksWhetherEmpty&) = delete;
  NumelAsksWhetherEmpty& operator=(const NumelAsksWhetherEmpty&) = delete;

 private:
  const bool outer_;
};

// Stands for a value of the graph that a tracer writes, and holds the real tensor that operators compute with. Sizes,
// strides and dtype are the real tensor's; where they are symbolic, a read of a plain number is a guard. Code that asks for
// its memory gets the real tensor's, and the trace is refused: no number enters a trace unseen. Only memory without contents
// may be asked for: C++ code fills such tensors (at::tensor).
//
// Autograd makes copies of tensors without calling an operator (SavedVariable). Copies stand for the same value, but for
// those of `.data()`: they are detached.
class TraceTensor final : public c10::TensorImpl {
 public:
  enum class Memory { kHidden, kShared };
  // `tracer`: the number of the tracer that owns the value. `real` must not require a gradient.
  // `geometry`: null if the sizes are those of every run.
  TraceTensor(at::Tensor real, Value* value, uint64_t tracer, Memory memory = Memory::kHidden,
              std::shared_ptr<const SymbolicGeometry> geometry = nullptr);

  // Returns the TraceTensor of a tensor; null if it is none.
  static TraceTensor* of(const at::Tensor& tensor);

  // Has the tensor stand for another value from now on. Copies stay what they are.
  void set_value(Value* value) { value_ = value; }

  // Has reads of its memory refuse the trace from now on.
  void hide_memory() { memory_ = Memory::kHidden; }

  const at::Tensor& real() const { return real_; }
  Value* value() const { return value_; }
  uint64_t tracer() const { return tracer_; }
  // Whether no operator has made it: autograd has saved it, or `.data()` returned it.
  bool is_copy() const { return is_copy_; }

  c10::intrusive_ptr<c10::TensorImpl> shallow_copy_and_detach(const c10::VariableVersion& version,
                                                              bool allow_tensor_metadata_change) const override;
  c10::intrusive_ptr<c10::TensorImpl> shallow_copy_and_detach(c10::VariableVersion&& version,
                                                              bool allow_tensor_metadata_change) const override;
  void shallow_copy_from(const c10::intrusive_ptr<c10::TensorImpl>& other) override;

  // LibTorch calls one of these before it reads or writes memory.
  bool has_storage() const override;
  const c10::Storage& storage() const override;

  c10::Layout layout_impl() const override { return real_.layout(); }

  at::IntArrayRef sizes_custom() const override;
  at::IntArrayRef strides_custom() const override;
  int64_t dim_custom() const override { return real_.dim(); }
  int64_t numel_custom() const override;
  int64_t storage_offset_custom() const override;
  c10::SymIntArrayRef sym_sizes_custom() const override;
  c10::SymIntArrayRef sym_strides_custom() const override;
  c10::SymInt sym_numel_custom() const override;
  c10::SymInt sym_storage_offset_custom() const override;
  c10::SymBool sym_is_contiguous_custom(at::MemoryFormat format) const override;
  c10::SymBool sym_is_non_overlapping_and_dense_custom() const override;
  bool is_strides_like_custom(at::MemoryFormat format) const override;

 private:
  const char* tensorimpl_type_name() const override { return "TraceTensor"; }
  void refuse_read() const;

  at::Tensor real_;
  Value* value_;
  uint64_t tracer_;
  Memory memory_;
  std::shared_ptr<const SymbolicGeometry> geometry_;
  bool is_copy_ = false;
  mutable bool was_asked_if_dense_ = false;  // and not for memory since
  mutable bool is_read_pending_ = false;
};

}  // namespace sconce
