#include "executor/recorded_calls/recorded_part.h"

#include "base/same_number.h"
#include "base/storage_of.h"
#include "executor/recorded_calls/rerun_backward.h"
#include "plan/autograd/alias_of.h"
#include "plan/autograd/backward_node.h"

#include <ATen/core/grad_mode.h>

#include <algorithm>
#include <iterator>
#include <utility>

namespace sconce {
namespace {

// Returns what is the caller's alone: a copy if backward keeps something else in its memory, or if the part returns what it
// was given, which a part before has made and the script has detached.
at::Tensor own_tensor(const at::Tensor& tensor) {
  if (tensor.requires_grad() || (storage_of(tensor) != nullptr && tensor.storage().use_count() > 1)) {
    return tensor.clone();
  }
  return tensor.is_view() ? alias_of(tensor) : tensor;
}

}  // namespace

RecordedPart::RecordedPart() = default;
RecordedPart::~RecordedPart() = default;

void RecordedPart::wait_for_compile() const {
  forward->wait_for_compile();
  if (backward != nullptr) {
    backward->wait_for_compile();
  }
  if (rerun != nullptr) {
    rerun->wait_for_compiles();
  }
}

void RecordedPart::explain(std::vector<Explanation>& plans) const {
  plans.push_back(forward->explain());
  if (backward != nullptr) {
    plans.push_back(backward->explain());
  }
  if (rerun != nullptr) {
    rerun->explain(plans);
  }
}

std::optional<std::vector<at::Tensor>> RecordedPart::run(torch::jit::Stack operands, size_t symbols) const {
  std::vector<at::Tensor> to_mark;
  for (const size_t position : marked) {
    to_mark.push_back(operands[symbols + position].toTensor());
  }
  std::shared_ptr<OperandsBefore> before;
  if (function != nullptr) {
    std::vector<size_t> positions;
    std::ranges::transform(written, std::back_inserter(positions), [symbols](size_t number) { return symbols + number; });
    before = std::make_shared<OperandsBefore>(operands, std::move(positions), draws);
  }
  torch::jit::Stack& stack = operands;  // then results
  forward->run(stack);
  const auto first_read = stack.begin() + static_cast<std::ptrdiff_t>(results);
  if (!std::equal(reads.begin(), reads.end(), first_read, is_same_number)) {
    return std::nullopt;
  }
  stack.erase(first_read, first_read + static_cast<std::ptrdiff_t>(reads.size()));
  for (const at::Tensor& tensor : to_mark) {
    tensor.requires_grad_();
  }
  const at::NoGradGuard no_grad;
  for (size_t i = 0; i < results; ++i) {
    stack[i] = own_tensor(std::move(stack[i]).toTensor());
  }
  if (function != nullptr) {
    before->note_versions();
    BackwardNode::make(function, before->operands(), before)->connect(stack);
  }
  std::vector<at::Tensor> returned;
  returned.reserve(results);
  for (size_t i = 0; i < results; ++i) {
    returned.push_back(std::move(stack[i]).toTensor());
  }
  return returned;
}

}  // namespace sconce
