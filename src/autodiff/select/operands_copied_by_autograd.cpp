#include "autodiff/select/operands_copied_by_autograd.h"

#include "analysis/effects.h"
#include "analysis/matrix_products.h"
#include "ir/constant_operands.h"

#include <algorithm>
#include <vector>

namespace sconce {
namespace {

// Returns whether the value may have more than two dimensions.
bool may_be_batch(const Value& value) {
  const TensorFacts* facts = value.facts();
  return is_tensor(value) && (facts == nullptr || !facts->sizes || facts->sizes->size() > 2);
}

// Returns whether both are batches of equally many matrices.
bool are_equal_batches(const Value& left, const Value& right) {
  const TensorFacts* a = left.facts();
  const TensorFacts* b = right.facts();
  return a != nullptr && b != nullptr && a->sizes && b->sizes && a->sizes->size() == 3 && b->sizes->size() == 3 &&
         !(*a->sizes)[0].is_unknown() && (*a->sizes)[0] == (*b->sizes)[0];
}

bool is_contiguous_in_every_run(const Value& value) { return value.facts() != nullptr && value.facts()->contiguous; }

// LibTorch makes one matrix of a batch that is multiplied by a matrix, and expands batches of different sizes: views where
// strides allow it, otherwise copies. Its attention multiplies scaled queries and keys, and values as matrix products do.
// These norms make their input contiguous.
bool may_be_kept_as_copy(const Node& node, size_t index) {
  if (node.kind() == aten::scaled_dot_product_attention) {
    return index < 3;
  }
  if (node.kind() == aten::group_norm || node.kind() == aten::instance_norm) {
    return index == 0 && !is_contiguous_in_every_run(*node.input(0));
  }
  const std::optional<MatrixProduct> product = matrix_product(node);
  if (!product || !product->left_may_be_batch || (index != product->left && index != product->right)) {
    return false;
  }
  const Value& left = *node.input(product->left);
  const Value& right = *node.input(product->right);
  const bool is_viewed = index == product->left && !may_be_batch(right) && is_contiguous_in_every_run(left);
  return may_be_batch(*node.input(index)) && !is_viewed && !are_equal_batches(left, right);
}

// Returns the values that this one may be, be a view of, or hold.
std::vector<const Value*> sources_of(const Value& value) {
  const Node& node = *value.node();
  const size_t at = value.offset();
  const Node* owner = node.owning_block() != nullptr ? node.owning_block()->owner() : nullptr;
  std::vector<const Value*> sources;
  if (node.opcode() == Opcode::kIf) {
    for (const Block* block : node.blocks()) {
      sources.push_back(block->returns()[at]);
    }
  } else if (node.opcode() == Opcode::kLoop) {
    sources = {node.input(at + 2), node.blocks()[0]->returns()[at + 1]};
  } else if (node.opcode() == Opcode::kParam && owner != nullptr && owner->opcode() == Opcode::kLoop && at > 0) {
    sources = {owner->input(at + 1), owner->blocks()[0]->returns()[at]};
  } else if (node.op().moves_operands) {
    sources.assign(node.inputs().begin(), node.inputs().end());
  } else if (node.schema() != nullptr && !node.inputs().empty() && is_tensor(*node.input(0))) {
    const auto& returns = node.schema()->returns();
    const bool is_marked = at < returns.size() && returns[at].alias_info() != nullptr;
    if (is_marked || node.op().results_may_share_memory) {
      sources = {node.input(0)};
    }
  }
  return sources;
}

// Adds the value and all that it comes from.
void add_with_origins(const Value& value, std::unordered_set<const Value*>& values) {
  std::vector<const Value*> waiting = {&value};
  while (!waiting.empty()) {
    const Value* next = waiting.back();
    waiting.pop_back();
    if (next->constant() == nullptr && values.insert(next).second) {
      const std::vector<const Value*> sources = sources_of(*next);
      waiting.insert(waiting.end(), sources.begin(), sources.end());
    }
  }
}

}  // namespace

OperandsCopiedByAutograd::Writes::Writes(const Graph& graph)
    : aliases(graph, AliasSets::Lists::kAsOperands), memory(graph, aliases) {
  for_each_node(graph.body(), [this](const Node* node) {
    for (size_t i = 0; node->schema() != nullptr && i < node->inputs().size(); ++i) {
      if (may_write_operand(*node, i)) {
        add_with_origins(*node->input(i), written);
      }
    }
  });
}

bool OperandsCopiedByAutograd::any_is_written_later(const Node& node) {
  for (size_t i = 0; i < node.inputs().size(); ++i) {
    if (may_be_kept_as_copy(node, i) && may_be_written_after(*node.input(i), node)) {
      return true;
    }
  }
  return false;
}

// All that the caller may hold is one set to AliasSets, statistics of layers too. Of these values, those are written that
// have an origin in common with the operand of a node that writes.
bool OperandsCopiedByAutograd::may_be_written_after(const Value& value, const Node& node) {
  if (!writes_) {
    writes_.emplace(graph_);
  }
  const Node* outermost = &node;
  while (outermost->owning_block()->owner() != nullptr) {
    outermost = outermost->owning_block()->owner();
  }
  const bool may_be =
      writes_->memory.may_be_written_after(value, *outermost) || writes_->memory.may_be_written_within(value, *outermost);
  if (!may_be || !writes_->aliases.is_wildcard(value)) {
    return may_be;
  }
  std::unordered_set<const Value*> origins;
  add_with_origins(value, origins);
  return std::any_of(origins.begin(), origins.end(), [this](const Value* each) { return writes_->written.contains(each); });
}

}  // namespace sconce
