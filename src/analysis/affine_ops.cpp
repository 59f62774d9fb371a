#include "analysis/affine_ops.h"

#include "ir/constant_operands.h"

#include <algorithm>

namespace sconce {
namespace {

bool surely_raises(const Block& block) {
  for (const Node* node : block.nodes()) {
    if (node->opcode() == Opcode::kRaise) {
      return true;
    }
  }
  return false;
}

// Whether `branch` stands in the block of `at` and before it.
bool comes_before(const Node& branch, const Node& at) {
  const Node* node = branch.owning_block() == at.owning_block() ? at.previous() : nullptr;
  while (node != nullptr && node != &branch) {
    node = node->previous();
  }
  return node != nullptr;
}

}  // namespace

std::optional<AffineOp> affine_op(const Node& node) {
  const auto& rule = node.op().affine;
  const auto weight = node.op().argument_index("weight");
  const auto bias = node.op().argument_index("bias");
  const size_t count = node.inputs().size();
  if (!rule || !weight || !bias || std::max(*weight, *bias) >= count || node.outputs().size() != 1 ||
      node.schema()->is_mutable()) {
    return std::nullopt;
  }
  AffineOp op{
      .weight = *weight, .bias = *bias, .transposed = rule->transposed, .accepts_batches_only = rule->accepts_batches_only};
  if (const Value* transposed = node.named_input("transposed")) {
    const auto* constant = transposed->constant();
    if (!constant || !constant->isBool()) {
      return std::nullopt;
    }
    op.transposed = constant->toBool();
  }
  if (const Value* groups = node.named_input("groups")) {
    const auto* constant = groups->constant();
    if (!constant || !constant->isInt() || constant->toInt() < 1) {
      return std::nullopt;
    }
    op.groups = constant->toInt();
  }
  return op;
}

bool is_batch_norm(const Node& node) { return node.opcode() == Opcode::kBatchNorm; }

bool has_checked_rank(const Value& tensor, int64_t rank, const Node& at) {
  const auto decides = [&](const Use& use) {
    const Node& test = *use.user;
    if ((test.opcode() != Opcode::kNotEqual && test.opcode() != Opcode::kEqual) ||
        !is_constant_int(*test.input(1 - use.index), rank)) {
      return false;
    }
    const size_t otherwise = test.opcode() == Opcode::kNotEqual ? 0 : 1;  // the branch for other ranks
    return std::ranges::any_of(test.output()->uses(), [&](const Use& tested) {
      return tested.user->kind() == prim::If && surely_raises(*tested.user->block(otherwise)) &&
             comes_before(*tested.user, at);
    });
  };
  return std::ranges::any_of(tensor.uses(), [&](const Use& use) {
    return use.user->opcode() == Opcode::kDim && std::ranges::any_of(use.user->output()->uses(), decides);
  });
}

}  // namespace sconce
