#include "plan/captured/form_operands.h"

#include "plan/captured/captured_operands.h"
#include "plan/prepared/same_value.h"

#include <ATen/ops/copy.h>

#include <algorithm>
#include <bit>

namespace sconce {
namespace {

void* address_of(const c10::IValue& tensor) { return const_cast<void*>(tensor.unsafeToTensorImpl()->data()); }

uint32_t count_of_writes(const at::Tensor& tensor) {
  return tensor.unsafeGetTensorImpl()->version_counter().current_version();
}

}  // namespace

std::string FormOperands::take(Operands operands, c10::Device device, const std::vector<bool>& is_in_memory) {
  operands_.resize(operands.size());
  for (size_t i = 0; i < operands.size(); ++i) {
    Operand& known = operands_[i];
    known.value = operands[i].isTensor() ? c10::IValue() : snapshot_of(operands[i]);
    if (is_in_memory[i] && fits_memory(operands[i])) {
      numbers_.push_back(i);
    }
    const bool is_known =
        operands[i].isTensor() ? known.tensor.prepare(operands[i], device) : is_same_value(operands[i], known.value);
    if (!is_known) {
      return "operand " + std::to_string(i) + " is neither a dense tensor on " + device.str() +
             " nor a number or a list of numbers";
    }
  }
  return {};
}

bool FormOperands::is_number(size_t position) const { return std::ranges::binary_search(numbers_, position); }

bool FormOperands::matches(Operands operands) const {
  for (size_t i = 0; i < operands.size(); ++i) {
    const bool is_same = is_tensor(i)   ? operands_[i].tensor.matches(operands[i])
                         : is_number(i) ? fits_memory(operands[i])
                                        : is_same_value(operands[i], operands_[i].value);
    if (!is_same) {
      return false;
    }
  }
  return true;
}

void FormOperands::note_addresses(Operands operands) {
  for (size_t i = 0; i < operands.size(); ++i) {
    operands_[i].address = is_tensor(i) ? address_of(operands[i]) : nullptr;
  }
}

torch::jit::Stack FormOperands::to_capture(Operands operands, const std::vector<bool>& always_copied) {
  torch::jit::Stack stack(operands.begin(), operands.end());
  copied_.clear();
  for (size_t i = 0; i < operands.size(); ++i) {
    if (!is_tensor(i)) {
      continue;
    }
    Operand& known = operands_[i];
    void* const address = address_of(operands[i]);
    known.is_copied = always_copied[i] || address != known.address;
    if (known.is_copied) {
      copied_.push_back(i);
    }
    known.address = address;
    known.captured = tensor_to_capture(known.tensor.shell, known.is_copied ? nullptr : address);
    known.version = count_of_writes(known.captured);
    stack[i] = known.captured;
  }
  return stack;
}

void FormOperands::note_writes(const std::vector<bool>& may_be_written) {
  written_.clear();
  for (size_t i = 0; i < operands_.size(); ++i) {
    Operand& known = operands_[i];
    known.is_written = known.captured.defined() && may_be_written[i] && count_of_writes(known.captured) != known.version;
    if (known.is_written) {
      written_.push_back(i);
    }
  }
}

bool FormOperands::have_moved(Operands operands, std::vector<bool>& always_copied) const {
  bool have = false;
  for (size_t i = 0; i < operands.size(); ++i) {
    if (is_tensor(i) && !operands_[i].is_copied && address_of(operands[i]) != operands_[i].address) {
      always_copied[i] = true;
      have = true;
    }
  }
  return have;
}

bool FormOperands::share_written_memory(Operands operands) const {
  for (const size_t copied : copied_) {
    const at::Tensor& tensor = operands[copied].toTensor();
    const auto shares = [&](size_t other) {
      return other != copied && is_tensor(other) && operands[other].toTensor().is_alias_of(tensor);
    };
    if (std::ranges::any_of(written_, shares)) {
      return true;
    }
    for (size_t i = 0; operands_[copied].is_written && i < operands.size(); ++i) {
      if (shares(i)) {
        return true;
      }
    }
  }
  return false;
}

void FormOperands::copy(Operands operands, DeviceRuntime& runtime) const {
  for (const size_t i : copied_) {
    copy_operand(operands[i].toTensor(), operands_[i].captured, runtime);
  }
}

void FormOperands::copy_back(Operands operands) const {
  for (const size_t i : written_) {
    if (operands_[i].is_copied) {
      operands[i].toTensor().copy_(operands_[i].captured);
    } else if (!operands[i].toTensor().is_inference()) {
      operands[i].unsafeToTensorImpl()->bump_version();
    }
  }
}

size_t FormOperands::copied_bytes() const {
  size_t bytes = 0;
  for (const size_t i : copied_) {
    bytes += operands_[i].captured.nbytes() * (operands_[i].is_written ? 2 : 1);
  }
  return bytes;
}

std::vector<int64_t> FormOperands::bits_of_numbers(Operands operands) const {
  std::vector<int64_t> bits;
  bits.reserve(numbers_.size());
  for (const size_t i : numbers_) {
    bits.push_back(std::bit_cast<int64_t>(operands[i].toDouble()));
  }
  return bits;
}

void FormOperands::keep_numbers(Operands operands) {
  for (const size_t i : numbers_) {
    operands_[i].value = operands[i];
  }
  numbers_.clear();
}

void FormOperands::forget_capture() {
  for (Operand& operand : operands_) {
    operand.captured.reset();
  }
}

}  // namespace sconce
