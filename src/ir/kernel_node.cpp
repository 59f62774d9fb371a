#include "ir/kernel_node.h"

#include <algorithm>

namespace sconce {
namespace {

// Returns the use by the return node of the kernel node's block; null if the block does not return the value.
const Use* return_of(const Value& value) {
  const Block* block = value.node()->owning_block();
  if (block == nullptr || block->owner() == nullptr || block->owner()->opcode() != Opcode::kKernel) {
    return nullptr;
  }
  const auto uses = value.uses();
  const auto found = std::ranges::find_if(uses, [&](const Use& use) { return use.user == block->return_node(); });
  return found == uses.end() ? nullptr : found;
}

}  // namespace

Node* make_kernel_node(c10::ArrayRef<Node*> nodes) {
  Node* kernel = nodes.back()->graph().create(kKernelKind, {}, 0);
  kernel->set_location(nodes.front()->location());
  kernel->insert_after(nodes.back());
  Block& block = *kernel->add_block();
  for (Node* node : nodes) {
    node->detach();
    node->append_to(block);
  }
  for (const Node* node : nodes) {
    for (Value* value : node->outputs()) {
      c10::SmallVector<Use, 4> outside;
      for (const Use& use : value->uses()) {
        if (use.user->owning_block() != &block) {
          outside.push_back(use);
        }
      }
      if (outside.empty()) {
        continue;
      }
      Value* result = kernel->add_output(value->type())->set_name(value->name());
      if (value->facts() != nullptr) {
        result->set_facts(*value->facts());
      }
      for (const Use& use : outside) {
        use.user->set_input(use.index, result);
      }
      block.add_return(value);
    }
  }
  return kernel;
}

void move_into_kernel(Node& node, Node& kernel) {
  node.detach();
  node.insert_before(*kernel.block(0)->nodes().begin());
}

bool dissolve_kernel_nodes(Graph& graph) {
  std::vector<Node*> kernels;
  for_each_node(graph.body(), [&](Node* node) {
    if (node->opcode() == Opcode::kKernel) {
      kernels.push_back(node);
    }
  });
  for (Node* kernel : kernels) {
    Block& block = *kernel->block(0);
    for (Node* node : block.nodes()) {
      node->detach();
      node->insert_before(kernel);
    }
    for (size_t i = 0; i < kernel->outputs().size(); ++i) {
      kernel->output(i)->replace_all_uses_with(block.returns()[i]);
    }
    while (!block.returns().empty()) {
      block.remove_return(block.returns().size() - 1);
    }
    kernel->erase();
  }
  return !kernels.empty();
}

const Value& computed_value(const Value& value) {
  const Node& node = *value.node();
  return node.opcode() == Opcode::kKernel ? *node.block(0)->returns()[value.offset()] : value;
}

const Value& value_outside(const Value& value) {
  const Use* use = return_of(value);
  return use == nullptr ? value : *use->user->owning_block()->owner()->output(use->index);
}

void for_each_user(const Value& value, c10::function_ref<void(const Node&)> visit) {
  const Use* returned = return_of(value);
  for (const Use& use : value.uses()) {
    if (&use != returned) {
      visit(*use.user);
    }
  }
  if (returned != nullptr) {
    for (const Use& use : value_outside(value).uses()) {
      visit(*use.user);
    }
  }
}

}  // namespace sconce
