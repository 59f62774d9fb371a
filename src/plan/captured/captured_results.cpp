#include "plan/captured/captured_results.h"

#include "base/plain_keys.h"
#include "plan/tensor_slot.h"

#include <ATen/ATen.h>

#include <algorithm>
#include <utility>

namespace sconce {
namespace {

bool is_defined_tensor(const c10::IValue& value) { return value.isTensor() && value.toTensor().defined(); }

// Returns the tensor without the marks that its elements are to be read as conjugates or negatives.
at::Tensor as_stored(const at::Tensor& tensor) {
  const at::Tensor positive = tensor.is_neg() ? at::_neg_view(tensor) : tensor;
  return positive.is_conj() ? at::_conj(positive) : positive;
}

// Returns a view with the marks of another tensor, or its detached alias if that is not a view.
at::Tensor marked_like(at::Tensor stored, const at::Tensor& form) {
  stored = form.is_conj() ? at::_conj(stored) : stored;
  stored = form.is_neg() ? at::_neg_view(stored) : stored;
  return form.is_view() ? stored : stored.detach();
}

// Returns all elements of the tensor's storage.
at::Tensor elements_of_storage(const at::Tensor& tensor) {
  const auto count = static_cast<int64_t>(tensor.storage().nbytes() / tensor.element_size());
  return as_stored(tensor).as_strided({count}, {1}, 0);
}

// Returns a copy of a dense tensor. The driver copies at a fraction of what an operator costs the host.
at::Tensor duplicate(const at::Tensor& tensor, DeviceRuntime& runtime) {
  if (!are_plain(tensor.key_set(), runtime.type()) || tensor.numel() == 0) {
    return tensor.clone();
  }
  at::Tensor copy = empty_like_shell(tensor);
  runtime.copy(copy.mutable_data_ptr(), tensor.const_data_ptr(), tensor.nbytes(),
               runtime.current_stream(tensor.device().index()));
  return copy;
}

// Returns the view of a copy that has the form of another tensor.
at::Tensor view_of(const at::Tensor& copy, const at::Tensor& form) {
  const bool has_dtype = copy.scalar_type() == form.scalar_type();
  return marked_like((has_dtype ? copy : elements_of_storage(copy).view(form.scalar_type()))
                         .as_strided(form.sizes(), form.strides(), form.storage_offset()),
                     form);
}

// Returns whether a clone of the tensor has each element where the tensor's storage has it.
bool is_dense_from_start(const at::Tensor& tensor) {
  return tensor.storage_offset() == 0 && tensor.is_non_overlapping_and_dense();
}

// Returns the end of the tensor's elements in its storage, in bytes.
size_t end_in_storage(const at::Tensor& tensor) {
  int64_t last = tensor.storage_offset();
  for (int64_t dim = 0; dim < tensor.dim(); ++dim) {
    last += (tensor.size(dim) - 1) * tensor.stride(dim);
  }
  return tensor.numel() == 0 ? 0 : static_cast<size_t>(last + 1) * tensor.element_size();
}

}  // namespace

CapturedResults::CapturedResults(torch::jit::Stack results, std::span<const c10::IValue> operands,
                                 std::span<const at::Tensor> constants, const std::vector<bool>& stays)
    : results_(std::move(results)), origins_(results_.size()) {
  for (size_t i = 0; i < results_.size(); ++i) {
    if (is_defined_tensor(results_[i])) {
      origins_[i] = origin_of(i, operands, constants, i < stays.size() && stays[i]);
    }
  }
  for (size_t k = 0; k < memories_.size(); ++k) {
    arrange(memories_[k], k);
  }
}

// Finds what the result shares memory with, or adds its memory.
CapturedResults::Result CapturedResults::origin_of(size_t result, std::span<const c10::IValue> operands,
                                                   std::span<const at::Tensor> constants, bool stays) {
  const at::Tensor& tensor = results_[result].toTensor();
  for (size_t k = 0; k < operands.size(); ++k) {
    if (!is_defined_tensor(operands[k]) || !operands[k].toTensor().is_alias_of(tensor)) {
      continue;
    }
    const at::Tensor& operand = operands[k].toTensor();
    if (operand.is_same(tensor)) {
      return {Origin::kOperand, k, 0};
    }
    TORCH_CHECK(operand.scalar_type() == tensor.scalar_type(), "a result is a view of an operand in another dtype");
    return {Origin::kViewOfOperand, k, tensor.storage_offset() - operand.storage_offset()};
  }
  const bool is_of_constant =
      std::ranges::any_of(constants, [&](const at::Tensor& constant) { return constant.is_alias_of(tensor); });
  if (is_of_constant) {
    return {};
  }
  const auto known =
      std::ranges::find_if(memories_, [&](const Memory& memory) { return memory.copied.is_alias_of(tensor); });
  const auto memory = static_cast<size_t>(known - memories_.begin());
  if (known == memories_.end()) {
    memories_.push_back({elements_of_storage(tensor)});
  }
  memories_[memory].stays = memories_[memory].stays && stays;
  for (size_t i = 0; i < result; ++i) {
    if (is_defined_tensor(results_[i]) && results_[i].toTensor().is_same(tensor)) {
      return {Origin::kResult, i, 0};
    }
  }
  return {Origin::kViewOfCopy, memory, 0};
}

// Decides what is copied of the memory, and how its results are handed out.
void CapturedResults::arrange(Memory& memory, size_t index) {
  std::vector<size_t> members;
  for (size_t i = 0; i < origins_.size(); ++i) {
    if (origins_[i].origin == Origin::kViewOfCopy && origins_[i].index == index) {
      members.push_back(i);
    }
  }
  if (memory.stays) {
    for (const size_t i : members) {
      origins_[i] = {};
    }
    return;
  }
  const auto end_of = [&](size_t i) { return end_in_storage(results_[i].toTensor()); };
  const size_t longest = *std::ranges::max_element(members, [&](size_t a, size_t b) { return end_of(a) < end_of(b); });
  const auto base = std::ranges::find_if(members, [&](size_t i) {
    const at::Tensor& tensor = results_[i].toTensor();
    const bool is_plain = !tensor.is_view() && !tensor.is_conj() && !tensor.is_neg();
    return is_plain && is_dense_from_start(tensor) && end_of(i) == end_of(longest);
  });
  if (base != members.end()) {
    memory.copied = results_[*base].toTensor();
    origins_[*base].origin = Origin::kCopy;
  } else if (const at::Tensor& only = results_[members[0]].toTensor(); members.size() == 1 && is_dense_from_start(only)) {
    memory.copied = as_stored(only);
  }
}

torch::jit::Stack CapturedResults::hand_out(std::span<const c10::IValue> operands, DeviceRuntime& runtime) const {
  std::vector<at::Tensor> copies(memories_.size());
  const auto copy_of = [&](size_t index) -> const at::Tensor& {
    if (!copies[index].defined()) {
      copies[index] = duplicate(memories_[index].copied, runtime);
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
            marked_like(operand.as_strided(form.sizes(), form.strides(), operand.storage_offset() + result.offset), form));
        break;
      }
      case Origin::kCopy: handed.emplace_back(copy_of(result.index)); break;
      case Origin::kViewOfCopy: handed.emplace_back(view_of(copy_of(result.index), results_[i].toTensor())); break;
      case Origin::kResult: handed.push_back(handed[result.index]); break;
    }
  }
  return handed;
}

size_t CapturedResults::copied_bytes() const {
  size_t bytes = 0;
  for (const Memory& memory : memories_) {
    bytes += memory.stays ? 0 : memory.copied.nbytes();
  }
  return bytes;
}

}  // namespace sconce
