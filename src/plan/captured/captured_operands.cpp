#include "plan/captured/captured_operands.h"

#include "base/storage_of.h"
#include "plan/prepared/form_hash.h"
#include "plan/tensor_slot.h"

#include <c10/core/InferenceMode.h>
#include <c10/util/Half.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <limits>

namespace sconce {
namespace {

// Returns the tensor with one element of each dimension that repeats its elements.
at::Tensor distinct_part(const at::Tensor& tensor) {
  c10::DimVector sizes(tensor.sizes().begin(), tensor.sizes().end());
  for (size_t i = 0; i < sizes.size(); ++i) {
    sizes[i] = tensor.stride(static_cast<int64_t>(i)) == 0 ? std::min<int64_t>(sizes[i], 1) : sizes[i];
  }
  return tensor.as_strided(sizes, tensor.strides(), tensor.storage_offset());
}

}  // namespace

bool fits_memory(const c10::IValue& number) {
  return number.isDouble() && std::abs(number.toDouble()) <= std::numeric_limits<c10::Half>::max();
}

void copy_operand(const at::Tensor& operand, const at::Tensor& captured, DeviceRuntime& runtime) {
  if (operand.is_non_overlapping_and_dense() && operand.numel() != 0) {
    runtime.copy(captured.mutable_data_ptr(), operand.const_data_ptr(), operand.nbytes(),
                 runtime.current_stream(operand.device().index()));
  } else {
    distinct_part(captured).copy_(distinct_part(operand));
  }
}

uint64_t hash_of(std::span<const c10::IValue> operands, const std::vector<bool>& is_left_out) {
  FormHash hash;
  for (size_t i = 0; i < operands.size(); ++i) {
    const c10::IValue& operand = operands[i];
    if (i < is_left_out.size() && is_left_out[i]) {
      continue;
    }
    if (operand.isTensor()) {
      hash.add(operand.toTensor());
    } else if (operand.isInt()) {
      hash.add(static_cast<uint64_t>(operand.toInt()));
    } else if (operand.isDouble()) {
      hash.add(std::bit_cast<uint64_t>(operand.toDouble()));
    } else if (operand.isBool()) {
      hash.add(operand.toBool() ? 1 : 2);
    }
  }
  return hash.value();
}

bool are_aligned(std::span<const c10::IValue> operands) {
  constexpr uintptr_t kAlignment = 16;
  return std::all_of(operands.begin(), operands.end(), [](const c10::IValue& operand) {
    return !operand.isTensor() || storage_of(operand.toTensor()) == nullptr ||
           reinterpret_cast<uintptr_t>(operand.unsafeToTensorImpl()->data()) % kAlignment == 0;
  });
}

at::Tensor tensor_to_capture(const at::Tensor& shell, void* address) {
  const c10::InferenceMode normal(false);
  if (address == nullptr) {
    return empty_like_shell(shell);
  }
  at::Tensor tensor = make_shell(shell.sizes(), shell.strides(), shell.scalar_type(), shell.device());
  point_storage_at(tensor, address);
  return tensor;
}

}  // namespace sconce
