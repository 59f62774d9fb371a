#include "plan/recorded/recorded_results.h"

#include "base/plain_keys.h"
#include "plan/prepared/tensor_slot.h"

#include <ATen/ATen.h>

#include <algorithm>
#include <utility>

namespace sconce {
namespace {

// Returns all elements of the tensor's storage.
at::Tensor elements_of_storage(const at::Tensor& tensor) {
  const auto count = static_cast<int64_t>(tensor.storage().nbytes() / tensor.element_size());
  return tensor.as_strided({count}, {1}, 0);
}

// Returns a copy of a dense tensor. The driver copies at a fraction of what an operator costs the host.
at::Tensor copy_of(const at::Tensor& tensor, DeviceRuntime& runtime) {
  if (!are_plain(tensor.key_set(), runtime.type()) || tensor.numel() == 0) {
    return tensor.clone();
  }
  at::Tensor copy = empty_like_shell(tensor);
  runtime.copy(copy.mutable_data_ptr(), tensor.const_data_ptr(), tensor.nbytes(),
               runtime.current_stream(tensor.device().index()));
  return copy;
}

bool is_defined_tensor(const c10::IValue& value) { return value.isTensor() && value.toTensor().defined(); }

}  // namespace

RecordedResults::RecordedResults(torch::jit::Stack results, std::span<const c10::IValue> operands,
                                 std::span<const at::Tensor> constants, const std::vector<bool>& stays)
    : results_(std::move(results)), origins_(results_.size()) {
  for (size_t i = 0; i < results_.size(); ++i) {
    if (is_defined_tensor(results_[i])) {
      origins_[i] = origin_of(results_[i].toTensor(), operands, constants, i < stays.size() && stays[i]);
    }
  }
  // A storage that several results share is copied as a whole.
  for (Result& result : origins_) {
    const auto results_of_storage = std::count_if(origins_.begin(), origins_.end(), [&](const Result& other) {
      return (other.origin == Origin::kCopy || other.origin == Origin::kPartOfCopy) && other.index == result.index;
    });
    if (result.origin == Origin::kCopy && results_of_storage > 1) {
      result.origin = Origin::kPartOfCopy;
    }
  }
}

RecordedResults::Result RecordedResults::origin_of(const at::Tensor& result, std::span<const c10::IValue> operands,
                                                   std::span<const at::Tensor> constants, bool stays) {
  for (size_t k = 0; k < operands.size(); ++k) {
    if (!is_defined_tensor(operands[k]) || !operands[k].toTensor().is_alias_of(result)) {
      continue;
    }
    const at::Tensor& operand = operands[k].toTensor();
    if (operand.is_same(result)) {
      return {Origin::kOperand, k, 0};
    }
    TORCH_CHECK(operand.scalar_type() == result.scalar_type(), "a result is a view of an operand in another dtype");
    return {Origin::kViewOfOperand, k, result.storage_offset() - operand.storage_offset()};
  }
  const bool is_of_constant = std::any_of(constants.begin(), constants.end(),
                                          [&](const at::Tensor& constant) { return constant.is_alias_of(result); });
  if (is_of_constant || stays) {
    return {};
  }
  for (size_t k = 0; k < storages_.size(); ++k) {
    if (storages_[k].is_alias_of(result)) {
      return {Origin::kPartOfCopy, k, 0};
    }
  }
  storages_.push_back(elements_of_storage(result));
  const bool is_whole = result.is_non_overlapping_and_dense() && result.storage_offset() == 0;
  return {is_whole ? Origin::kCopy : Origin::kPartOfCopy, storages_.size() - 1, 0};
}

torch::jit::Stack RecordedResults::hand_out(std::span<const c10::IValue> operands, DeviceRuntime& runtime) const {
  std::vector<at::Tensor> copies(storages_.size());
  const auto copy_of_storage = [&](size_t index) -> const at::Tensor& {
    if (!copies[index].defined()) {
      copies[index] = storages_[index].clone();
    }
    return copies[index];
  };
  torch::jit::Stack handed;
  handed.reserve(results_.size());
  for (size_t i = 0; i < results_.size(); ++i) {
    const Result& result = origins_[i];
    switch (result.origin) {
      case Origin::kItself: handed.push_back(results_[i]); break;
      case Origin::kOperand: handed.push_back(operands[result.index]); break;
      case Origin::kViewOfOperand: {
        const at::Tensor& operand = operands[result.index].toTensor();
        const at::Tensor& form = results_[i].toTensor();
        handed.emplace_back(
            operand.as_strided(form.sizes(), form.strides(), operand.storage_offset() + result.offset));
        break;
      }
      case Origin::kCopy: handed.emplace_back(copy_of(results_[i].toTensor(), runtime)); break;
      case Origin::kPartOfCopy: {
        const at::Tensor& form = results_[i].toTensor();
        const at::Tensor& copy = copy_of_storage(result.index);
        const bool has_dtype = copy.scalar_type() == form.scalar_type();
        handed.emplace_back((has_dtype ? copy : copy.view(form.scalar_type()))
                                .as_strided(form.sizes(), form.strides(), form.storage_offset()));
        break;
      }
    }
  }
  return handed;
}

}  // namespace sconce
