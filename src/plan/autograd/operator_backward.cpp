#include "plan/autograd/operator_backward.h"

#include "base/cpu_generator.h"

#include <ATen/core/grad_mode.h>

#include <algorithm>
#include <utility>

namespace sconce {

namespace {

// Returns the version without a virtual call per tensor; 0 of one that has none.
int64_t version_of(const at::Tensor& tensor) {
  const c10::VariableVersion& counter = tensor.unsafeGetTensorImpl()->version_counter();
  return counter.enabled() ? counter.current_version() : 0;
}

}  // namespace

OperandsBefore::OperandsBefore(std::vector<c10::IValue> operands, std::vector<size_t> written, bool draws)
    : operands_(std::move(operands)), written_(std::move(written)) {
  if (draws) {
    const std::lock_guard lock(cpu_generator().mutex());
    random_state_ = cpu_generator().get_state();
  }
  const at::NoGradGuard no_grad;
  for (const size_t number : written_) {
    contents_.push_back(operands_[number].toTensor().clone());
  }
}

void OperandsBefore::note_versions() {
  versions_.reserve(operands_.size());
  for (const c10::IValue& operand : operands_) {
    versions_.push_back(operand.isTensor() ? version_of(operand.toTensor()) : 0);
  }
}

std::vector<c10::IValue> OperandsBefore::checked(const std::vector<bool>& read, const std::string& name) const {
  std::vector<c10::IValue> operands = operands_;
  for (size_t i = 0; i < operands.size(); ++i) {
    if (read[i] && operands[i].isTensor() && std::ranges::find(written_, i) == written_.end()) {
      const at::Tensor& tensor = operands[i].toTensor();
      TORCH_CHECK(version_of(tensor) == versions_[i], message_of_version(tensor, name, versions_[i]));
    }
  }
  const at::NoGradGuard no_grad;
  for (size_t i = 0; i < written_.size(); ++i) {
    operands[written_[i]] = contents_[i].clone();
  }
  return operands;
}

std::string message_of_version(const at::Tensor& tensor, const std::string& name, int64_t saved) {
  return c10::str("one of the variables needed for gradient computation has been modified by an inplace operation: [",
                  tensor.toString(), " ", tensor.sizes(), "], which is output of ", name, ", is at version ",
                  tensor._version(), "; expected version ", saved, " instead.");
}

}  // namespace sconce
