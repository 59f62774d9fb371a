#include "shapes/metadata_mutations.h"

#include "analysis/effects.h"
#include "ir/memory_types.h"

#include <ATen/core/jit_type.h>

#include <algorithm>

namespace sconce {
namespace {

bool is_tensor(const c10::TypePtr& type) {
  return type->kind() == c10::TypeKind::TensorType || type->isSubtypeOf(*c10::OptionalType::ofTensor());
}

// Returns which operands may get other sizes, strides or memory.
std::vector<const Value*> changed_by(const Node& node) {
  if (effects_of(node).unknown) {
    return {node.inputs().begin(), node.inputs().end()};
  }
  if (!node.op().may_change_sizes) {
    return {};
  }
  std::vector<const Value*> exchanged;
  for (size_t i = 0; i < node.inputs().size(); ++i) {
    if (may_write_operand(node, i)) {
      exchanged.push_back(node.input(i));
    }
  }
  return exchanged;
}

// Returns whether the container that the node makes is never read in the graph: it is a result of the graph, or is stored in
// one.
bool builds_only_a_result(const Node& node) {
  const bool makes_container = node.opcode() == Opcode::kListConstruct || node.opcode() == Opcode::kTupleConstruct ||
                               node.opcode() == Opcode::kDictConstruct;
  const auto is_for_the_caller = [](const Use& use) {
    return (use.user->opcode() == Opcode::kReturn && use.user->owning_block()->owner() == nullptr) ||
           builds_only_a_result(*use.user);
  };
  return makes_container && std::ranges::all_of(node.output()->uses(), is_for_the_caller);
}

}  // namespace

MetadataMutations::MetadataMutations(const Graph& graph) : assigned_(graph) {
  for (const Value* input : graph.inputs()) {
    unite(set_for(*input), kBefore);
  }
  visit_block(graph.body());
  is_exchanged_.resize(parent_.size());
  for_each_node(graph.body(), [&](const Node* node) {
    if (effects_of(*node).unknown) {
      exchange(find(kBefore));
      exchange(find(kRead));
    }
    for (const Value* value : changed_by(*node)) {
      any_ = true;
      exchange(find(is_tensor(value->type()) ? set_for(*value) : kRead));
    }
  });
}

bool MetadataMutations::contains(const Value& value) const {
  const auto found = sets_.find(&value);
  return found != sets_.end() && is_exchanged_[find(found->second)];
}

// An object that was read may be any object that was stored; one from before the run may be any other such object.
void MetadataMutations::exchange(Set set) {
  is_exchanged_.resize(parent_.size());
  is_exchanged_[set] = true;
  if (set == find(kRead)) {
    for (Set other = 0; other < parent_.size(); ++other) {
      is_exchanged_[find(other)] = is_exchanged_[find(other)] || is_put_[find(other)];
    }
  } else if (is_put_[set]) {
    is_exchanged_[find(kRead)] = true;
  }
}

MetadataMutations::Set MetadataMutations::find(Set set) const {
  while (parent_[set] != set) {
    set = parent_[set] = parent_[parent_[set]];
  }
  return set;
}

MetadataMutations::Set MetadataMutations::set_for(const Value& value) {
  const auto [entry, is_new] = sets_.try_emplace(&value, static_cast<Set>(parent_.size()));
  if (is_new) {
    parent_.push_back(entry->second);
    is_put_.push_back(false);
  }
  return entry->second;
}

void MetadataMutations::unite(Set a, Set b) {
  a = find(a);
  b = find(b);
  parent_[b] = a;
  is_put_[a] = is_put_[a] || is_put_[b];
}

void MetadataMutations::visit_block(const Block& block) {
  for (const Node* node : block.nodes()) {
    visit_node(*node);
  }
}

void MetadataMutations::visit_node(const Node& node) {
  const auto unite_values = [this](const Value& a, const Value& b) { unite(set_for(a), set_for(b)); };
  switch (node.opcode()) {
    case Opcode::kConstant: unite(set_for(*node.output()), kBefore); return;
    case Opcode::kGetAttr: unite(set_for(*node.output()), assigned_.contains(node) ? kRead : kBefore); return;
    case Opcode::kIf:
      for (const Block* block : node.blocks()) {
        visit_block(*block);
        for (size_t i = 0; i < node.outputs().size(); ++i) {
          unite_values(*node.output(i), *block->returns()[i]);
        }
      }
      return;
    case Opcode::kLoop: {
      const Block& body = *node.block(0);
      visit_block(body);
      for (size_t i = 0; i < node.outputs().size(); ++i) {
        unite_values(*body.params()[i + 1], *node.input(i + 2));
        unite_values(*body.params()[i + 1], *body.returns()[i + 1]);
        unite_values(*node.output(i), *body.params()[i + 1]);
      }
      return;
    }
    case Opcode::kUncheckedCast:
    case Opcode::kUnwrapOptional: unite_values(*node.output(), *node.input(0)); return;
    default: break;
  }
  if (!node.op().is_language() && node.schema() != nullptr && !effects_of(node).unknown) {
    visit_operator(node);
    return;
  }
  if (builds_only_a_result(node)) {
    return;
  }
  // Handles containers and assigned attributes. The result of an unknown node may be any object.
  for (const Value* input : node.inputs()) {
    put(*input);
  }
  for (const Value* output : node.outputs()) {
    unite(set_for(*output), kRead);
  }
  for (const Block* block : node.blocks()) {
    for (const Value* param : block->params()) {
      unite(set_for(*param), kRead);
    }
    visit_block(*block);
    for (const Value* result : block->returns()) {
      put(*result);
    }
  }
}

void MetadataMutations::visit_operator(const Node& node) {
  const c10::FunctionSchema& schema = *node.schema();
  const bool may_keep = std::ranges::any_of(node.inputs(), [](const Value* input) { return is_container(input->type()); });
  for (const Value* input : node.inputs()) {
    if (may_keep && is_tensor(input->type())) {
      put(*input);
    }
  }
  for (size_t i = 0; i < node.outputs().size(); ++i) {
    const Value& output = *node.output(i);
    if (!is_tensor(output.type()) || node.op().new_view) {
      set_for(output);
      continue;
    }
    const c10::AliasInfo* alias = i < schema.returns().size() ? schema.returns()[i].alias_info() : nullptr;
    if (alias == nullptr && !node.op().results_may_share_memory) {
      set_for(output);
      continue;
    }
    for (size_t k = 0; k < node.inputs().size(); ++k) {
      const Value& input = *node.input(k);
      const c10::AliasInfo* given = k < schema.arguments().size() ? schema.arguments()[k].alias_info() : nullptr;
      if (alias != nullptr && !alias->isWildcardAfter() &&
          (given == nullptr || given->beforeSets() != alias->beforeSets())) {
        continue;  // the result is another operand
      }
      if (is_tensor(input.type())) {
        unite(set_for(output), set_for(input));
      } else if (is_container(input.type())) {
        unite(set_for(output), kRead);
      }
    }
  }
}

}  // namespace sconce
