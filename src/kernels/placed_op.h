// PlacedOp: one of LibTorch's structured operators, with its result placed by us.
#pragma once

#include "plan/prepared/kernel.h"

#include <ATen/TensorIterator.h>

namespace sconce {

// A structured operator of LibTorch (at::native::structured_…) is a class: `meta` checks the operands, and finds the
// result's sizes, strides and dtype; `impl` computes. PlacedOp follows the protocol by which LibTorch's generated code
// derives from it: `meta` calls set_output_…, which makes the result and returns it from maybe_get_output.
template <class Op>
class PlacedOp final : public Op {
 public:
  explicit PlacedOp(KernelResult& result) : result_(result) {}

  const at::Tensor& maybe_get_output(int64_t /*index*/) override { return placed_; }
  void set_output_raw_strided(int64_t index, c10::IntArrayRef sizes, c10::IntArrayRef strides, at::TensorOptions options,
                              at::DimnameList names) override {
    const at::ScalarType dtype = c10::typeMetaToScalarType(options.dtype());
    const auto format = options.memory_format_opt().value_or(at::MemoryFormat::Contiguous);
    if (strides.empty() && format == at::MemoryFormat::ChannelsLast) {
      placed_ = result_.place(sizes, c10::get_channels_last_strides_2d(sizes), dtype);
    } else if (strides.empty() && format == at::MemoryFormat::ChannelsLast3d) {
      placed_ = result_.place(sizes, c10::get_channels_last_strides_3d(sizes), dtype);
    } else {
      placed_ = result_.place(sizes, strides, dtype);
    }
    if constexpr (std::is_base_of_v<at::TensorIteratorBase, Op>) {
      Op::set_output_raw_strided(index, sizes, strides, options, names);
    }
  }
  void set_output_strided(int64_t index, c10::IntArrayRef sizes, c10::IntArrayRef strides, at::TensorOptions options,
                          at::DimnameList names) override {
    set_output_raw_strided(index, sizes, strides, options, names);
  }

 private:
  KernelResult& result_;
  at::Tensor placed_;
};

// Returns whether the iterator stays right when its operands lie elsewhere in the next run. It does not
//   - if it made a copy of an operand in another dtype, but for `number`, the operand that is a number;
//   - if its kernel removes an operand, as those for reduced floats with a number do;
//   - if the result is a float because of the default dtype, which may change.
bool is_reusable(const at::TensorIteratorBase& iterator, int number = -1);

// Returns the number as a tensor that takes part in type promotion as numbers do.
at::Tensor wrapped_number(const c10::IValue& number);

}  // namespace sconce
