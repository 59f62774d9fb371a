#include "analysis/memory/invariant_tensors.h"

#include "analysis/memory/escapes.h"

namespace sconce {

InvariantTensors::InvariantTensors(const Graph& graph) {
  for_each_node(graph.body(), [&](Node* node) {
    const auto* constant = node->kind() == prim::Constant ? node->output()->constant() : nullptr;
    if (constant && constant->isTensor() && constant->toTensor().has_storage() &&
        (node->attribute(attr::kShared) != nullptr || !is_read_only_and_local(*node->output()))) {
      changing_.insert(constant->toTensor().storage().unsafeGetStorageImpl());
    }
  });
}

bool InvariantTensors::may_change(const at::Tensor& constant) const {
  return constant.has_storage() && changing_.count(constant.storage().unsafeGetStorageImpl()) != 0;
}

std::optional<at::Tensor> InvariantTensors::find(const Value* operand) const {
  const auto* constant = operand == nullptr ? nullptr : operand->constant();
  if (!constant || constant->isNone()) {
    return constant ? std::optional(at::Tensor()) : std::nullopt;
  }
  const bool is_fixed = constant->isTensor() && constant->toTensor().defined() &&
                        constant->toTensor().layout() == c10::kStrided && !constant->toTensor().requires_grad() &&
                        !constant->toTensor().is_conj() && !constant->toTensor().is_neg() &&
                        !may_change(constant->toTensor());
  return is_fixed ? std::optional(constant->toTensor()) : std::nullopt;
}

}  // namespace sconce
