#include "analysis/affine_ops.h"

#include "ir/constant_operands.h"

#include <algorithm>
#include <array>
#include <string_view>

namespace sconce {
namespace {

struct AffineRow {
  std::string_view op;
  bool transposed = false;
  bool accepts_batches_only = false;
};
// Those that have an argument `transposed` are what it says.
constexpr std::array kAffineRows = {
    AffineRow{.op = "aten::linear"},
    AffineRow{.op = "aten::conv1d"},
    AffineRow{.op = "aten::conv2d"},
    AffineRow{.op = "aten::conv3d"},
    AffineRow{.op = "aten::conv_transpose1d", .transposed = true},
    AffineRow{.op = "aten::conv_transpose2d", .transposed = true},
    AffineRow{.op = "aten::conv_transpose3d", .transposed = true},
    AffineRow{.op = "aten::convolution", .accepts_batches_only = true},
    AffineRow{.op = "aten::_convolution", .accepts_batches_only = true},
};

std::optional<size_t> argument_index(const Node& node, std::string_view name) {
  const auto& arguments = node.schema()->arguments();
  for (size_t i = 0; i < std::min(arguments.size(), node.inputs().size()); ++i) {
    if (arguments[i].name() == name) {
      return i;
    }
  }
  return std::nullopt;
}

bool surely_raises(const Block& block) {
  for (const Node* node : block.nodes()) {
    if (node->kind() == prim::RaiseException) {
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
  if (node.schema() == nullptr) {
    return std::nullopt;
  }
  const auto* row = std::find_if(kAffineRows.begin(), kAffineRows.end(),
                                 [&](const AffineRow& each) { return each.op == node.schema()->name(); });
  const auto weight = row == kAffineRows.end() ? std::nullopt : argument_index(node, "weight");
  const auto bias = row == kAffineRows.end() ? std::nullopt : argument_index(node, "bias");
  if (!weight || !bias || node.outputs().size() != 1 || node.schema()->is_mutable()) {
    return std::nullopt;
  }
  AffineOp op{
      .weight = *weight, .bias = *bias, .transposed = row->transposed, .accepts_batches_only = row->accepts_batches_only};
  if (const Value* transposed = node.named_input("transposed")) {
    const auto constant = transposed->constant();
    if (!constant || !constant->isBool()) {
      return std::nullopt;
    }
    op.transposed = constant->toBool();
  }
  if (const Value* groups = node.named_input("groups")) {
    const auto constant = groups->constant();
    if (!constant || !constant->isInt() || constant->toInt() < 1) {
      return std::nullopt;
    }
    op.groups = constant->toInt();
  }
  return op;
}

bool is_batch_norm(const Node& node) { return node.kind() == aten::batch_norm && node.schema() != nullptr; }

bool reads_metadata(const Node& node) {
  static const std::array kinds = {aten::dim,   aten::size,   aten::len,    aten::is_floating_point,
                                   prim::dtype, prim::device, prim::layout, c10::Symbol::fromQualString("aten::numel")};
  return std::find(kinds.begin(), kinds.end(), node.kind()) != kinds.end();
}

bool has_checked_rank(const Value& tensor, int64_t rank, const Node& at) {
  const auto decides = [&](const Use& use) {
    const Node& test = *use.user;
    if ((test.kind() != aten::ne && test.kind() != aten::eq) || !is_constant_int(*test.input(1 - use.index), rank)) {
      return false;
    }
    const size_t otherwise = test.kind() == aten::ne ? 0 : 1;  // the branch for other ranks
    return std::any_of(test.output()->uses().begin(), test.output()->uses().end(), [&](const Use& tested) {
      return tested.user->kind() == prim::If && surely_raises(*tested.user->block(otherwise)) &&
             comes_before(*tested.user, at);
    });
  };
  return std::any_of(tensor.uses().begin(), tensor.uses().end(), [&](const Use& use) {
    return use.user->kind() == aten::dim &&
           std::any_of(use.user->output()->uses().begin(), use.user->output()->uses().end(), decides);
  });
}

}  // namespace sconce
