#include "analysis/memory/alias_sets.h"

#include "analysis/effects.h"
#include "analysis/memory/list_writes.h"

#include <torch/csrc/jit/runtime/operator.h>

#include <algorithm>

namespace sconce {
namespace {

bool shares_a_symbol(const c10::AliasInfo& a, const c10::AliasInfo& b) {
  return std::ranges::any_of(a.afterSets(), [&](c10::Symbol symbol) { return b.beforeSets().contains(symbol); });
}

}  // namespace

// ---- union-find -----------------------------------------------------------------------------------------------------

AliasSets::Set AliasSets::new_set() {
  const Set set = static_cast<Set>(parent_.size());
  parent_.push_back(set);
  contents_.push_back(kNone);
  holds_operands_.push_back(false);
  return set;
}

AliasSets::Set AliasSets::find(Set set) const {
  while (parent_[set] != set) {
    set = parent_[set] = parent_[parent_[set]];
  }
  return set;
}

AliasSets::Set AliasSets::unite(Set a, Set b) {
  if (a == kNone || b == kNone) {
    return kNone;
  }
  a = find(a);
  b = find(b);
  if (a == b) {
    return a;
  }
  parent_[b] = a;
  if (a == wildcard()) {
    holds_operands_[a] = false;
  } else if (holds_operands_[a] != holds_operands_[b]) {
    holds_operands_[a] = true;
    found_holder_ = true;
  }
  const Set contents_a = contents_[a];
  const Set contents_b = contents_[b];
  contents_[a] = contents_a == kNone ? contents_b : contents_a;
  if (contents_a != kNone && contents_b != kNone) {
    unite(contents_a, contents_b);
  }
  return find(a);
}

AliasSets::Set AliasSets::set_for(const Value* value) {
  Set& set = sets_[value->id()];
  if (set == kNone) {
    if (!holds_memory(value->type())) {
      return kNone;
    }
    set = new_set();
  }
  return find(set);
}

AliasSets::Set AliasSets::contents_for(Set set) {
  if (set == kNone) {
    return kNone;
  }
  set = find(set);
  if (contents_[set] == kNone) {
    const Set contents = new_set();
    contents_[set] = contents;
  }
  return find(contents_[set]);
}

void AliasSets::mark_holder(Set set) {
  if (set != kNone && find(set) != wildcard() && !holds_operands_[find(set)]) {
    holds_operands_[find(set)] = true;
    found_holder_ = true;
  }
}

void AliasSets::unite_values(const Value* a, const Value* b) { unite(set_for(a), set_for(b)); }

// ---- the analysis ---------------------------------------------------------------------------------------------------

AliasSets::AliasSets(const Graph& graph, Lists lists) : lists_(lists), sets_(graph.id_bound(), kNone) {
  parent_.reserve(graph.id_bound());
  contents_.reserve(graph.id_bound());
  new_set();
  contents_[kWildcard] = kWildcard;
  for (const Value* input : graph.inputs()) {
    escape(input);
  }
  do {
    found_holder_ = false;
    visit_block(graph.body());
  } while (found_holder_);  // a loop may hand it to a node that was visited before
  written_.resize(parent_.size());
  for_each_node(graph.body(), [&](Node* node) {
    for (const Memory& write : writes_of(*node)) {
      written_[write.set] |= write.kinds;
    }
  });
}

void AliasSets::visit_block(const Block& block) {
  for (const Node* node : block.nodes()) {
    visit_node(*node);
    for (const Value* output : node->outputs()) {
      set_for(output);
    }
  }
}

void AliasSets::visit_node(const Node& node) {
  if (node.op().is_language()) {
    if (!visit_language_node(node)) {
      visit_unknown(node);
    }
  } else if (node.schema() == nullptr || effects_of(node).unknown) {
    visit_unknown(node);
  } else {
    visit_operator(node);
  }
}

// Handles the node kinds of the language. Returns false for an unknown kind.
bool AliasSets::visit_language_node(const Node& node) {
  switch (node.opcode()) {
    case Opcode::kConstant:
      // Constants outlive the run, and every run observes them. None has no memory.
      if (const auto* value = node.output()->constant(); !value || !value->isNone()) {
        escape(node.output());
      }
      return true;
    case Opcode::kUninitialized: return true;
    case Opcode::kIf:
    case Opcode::kKernel:
      for (const Block* block : node.blocks()) {
        visit_block(*block);
        for (size_t i = 0; i < node.outputs().size(); ++i) {
          unite_values(node.output(i), block->returns()[i]);
        }
      }
      return true;
    case Opcode::kLoop: {
      const Block& body = *node.block(0);
      for (size_t i = 0; i < node.outputs().size(); ++i) {
        unite_values(body.params()[i + 1], node.input(i + 2));
        unite_values(node.output(i), node.input(i + 2));
      }
      visit_block(body);
      for (size_t i = 0; i < node.outputs().size(); ++i) {
        unite_values(node.output(i), body.returns()[i + 1]);
      }
      return true;
    }
    case Opcode::kListConstruct:
      if (lists_ == Lists::kAsOperands && is_operand_list(*node.output())) {
        return true;
      }
      [[fallthrough]];
    case Opcode::kTupleConstruct:
    case Opcode::kDictConstruct:
      for (const Value* element : node.inputs()) {
        if (holds_memory(element->type())) {
          unite(contents_for(set_for(node.output())), set_for(element));
        }
      }
      return true;
    case Opcode::kListUnpack:
      if (lists_ == Lists::kAsOperands && is_result_list(*node.input(0))) {
        return true;  // visit_operator knows the elements
      }
      [[fallthrough]];
    case Opcode::kTupleUnpack:
    case Opcode::kTupleIndex:
      for (const Value* element : node.outputs()) {
        if (holds_memory(element->type())) {
          unite(contents_for(set_for(node.input(0))), set_for(element));
        }
      }
      return true;
    case Opcode::kTupleSlice: unite(contents_for(set_for(node.input(0))), contents_for(set_for(node.output()))); return true;
    case Opcode::kConstantChunk:
      for (const Value* chunk : node.outputs()) {
        unite_values(chunk, node.input(0));
      }
      return true;
    case Opcode::kUncheckedCast: unite_values(node.output(), node.input(0)); return true;
    case Opcode::kIsInstance: return true;
    case Opcode::kCreateObject: return true;
    case Opcode::kGetAttr: unite(contents_for(set_for(node.input(0))), set_for(node.output())); return true;
    case Opcode::kSetAttr: unite(contents_for(set_for(node.input(0))), set_for(node.input(1))); return true;
    default: return false;
  }
}

void AliasSets::visit_operator(const Node& node) {
  if (node.op().may_keep_operands) {
    visit_unknown(node);
    return;
  }
  if (lists_ == Lists::kAsOperands && node.outputs().size() == 1 && is_result_list(*node.output())) {
    for (const Value* element : unpacking_node(*node.output())->outputs()) {
      for (const Value* input : node.inputs()) {
        if (!is_container(input->type())) {
          unite_values(element, input);
        }
      }
      if (node.op().results_may_hold_operands) {
        mark_holder(set_for(element));
      }
    }
    return;
  }
  const Op& op = node.op();
  const c10::FunctionSchema& schema = *op.schema;
  const auto& formals = schema.arguments();
  const size_t formal_inputs = std::min(formals.size(), node.inputs().size());
  bool writes_container = false;
  for (size_t i = 0; i < formal_inputs; ++i) {
    const c10::AliasInfo* info = formals[i].alias_info();
    writes_container |= op.writes_argument(i) && is_container(node.input(i)->type());
    if (info != nullptr && info->isWildcardAfter()) {
      escape(node.input(i));
    }
  }
  if (writes_container) {
    // Stored values come from the other arguments, and are in the container from now on. `append` stores its argument
    // itself; `extend` and `update` store the elements of theirs.
    for (size_t i = 0; i < formal_inputs; ++i) {
      const Value* container = node.input(i);
      if (!op.writes_argument(i) || !is_container(container->type())) {
        continue;
      }
      for (const Value* other : node.inputs()) {
        if (other == container || !holds_memory(other->type())) {
          continue;
        }
        if (!is_container(other->type()) || holds_containers(container->type())) {
          unite(contents_for(set_for(container)), set_for(other));
        }
        if (is_container(other->type())) {
          unite(contents_for(set_for(container)), contents_for(set_for(other)));
        }
      }
    }
  }
  if (op.results == Sharing::kShared) {
    for (const c10::ArrayRef<Value*> values : {node.inputs(), node.outputs()}) {
      for (const Value* value : values) {
        if (!is_container(value->type())) {
          unite_values(value, node.output());
        }
      }
    }
  }
  for (size_t r = 0; r < node.outputs().size(); ++r) {
    const Value* output = node.output(r);
    if (!holds_memory(output->type())) {
      continue;
    }
    const c10::AliasInfo* info = r < schema.returns().size() ? schema.returns()[r].alias_info() : nullptr;
    const bool marked = info != nullptr && !(info->beforeSets().empty() && info->containedTypes().empty());
    if (marked && !info->isWildcardAfter() && !info->isWildcardBefore() && info->containedTypes().empty()) {
      for (size_t i = 0; i < formal_inputs; ++i) {
        if (formals[i].alias_info() != nullptr && shares_a_symbol(*formals[i].alias_info(), *info)) {
          unite_values(output, node.input(i));
        }
      }
    } else {
      // If the result is an element of a container, a list of views, a composite's result, or a holder, it may share memory
      // with any argument and with anything that the arguments contain. Otherwise it does with arguments that are holders.
      const bool may_share =
          marked || op.results_may_share_memory || op.results_may_hold_operands || is_container(output->type());
      for (const Value* input : node.inputs()) {
        if (!holds_memory(input->type())) {
          continue;
        }
        const Set source = is_container(input->type()) ? contents_for(set_for(input)) : set_for(input);
        if (!may_share && !holds_operands(source)) {
          continue;
        }
        unite(is_container(output->type()) ? contents_for(set_for(output)) : set_for(output), source);
        if (is_container(output->type()) && is_container(input->type())) {
          // `items` returns pairs of values of the dict itself. The analysis does not distinguish depths of nesting.
          if (holds_containers(output->type()) && *output->type() != *input->type()) {
            unite(contents_for(set_for(output)), contents_for(contents_for(set_for(output))));
          }
          if (!op.makes_container) {
            unite_values(output, input);
          }
          if (holds_containers(input->type())) {
            unite(set_for(output), source);
          }
        }
      }
      if (op.results_may_hold_operands) {
        mark_holder(is_container(output->type()) ? contents_for(set_for(output)) : set_for(output));
      }
    }
  }
}

void AliasSets::visit_unknown(const Node& node) {
  for (const c10::ArrayRef<Value*> values : {node.inputs(), node.outputs()}) {
    for (const Value* value : values) {
      escape(value);
    }
  }
  for (const Block* block : node.blocks()) {
    for (const Value* param : block->params()) {
      escape(param);
    }
    visit_block(*block);
    for (const Value* result : block->returns()) {
      escape(result);
    }
  }
}

}  // namespace sconce
