#include "passes/inline_calls.h"

#include <ATen/core/function.h>

#include <algorithm>
#include <vector>

namespace sconce {
namespace {

class Inliner {
 public:
  Inliner(Graph& graph, FunctionTable& functions) : graph_(graph), functions_(functions) {}

  std::optional<Refusal> inline_in(const Block& block) { return inline_between(block.first(), nullptr); }

  bool changed() const { return changed_; }

 private:
  std::optional<Refusal> inline_call(Node* call) {
    const auto callee = FunctionTable::callee_of(*call);
    if (!callee) {
      return callee.refusal();
    }
    // Stays a call: which method it is, or how often it calls itself, is known only at run time; or it has no graph.
    if (*callee == nullptr || !(*callee)->isGraphFunction() ||
        std::find(active_.begin(), active_.end(), *callee) != active_.end()) {
      return std::nullopt;
    }
    const auto body = functions_.graph_of(**callee);
    if (!body) {
      return body.refusal();
    }
    // A method takes its object as first input, a function stands before its arguments.
    const size_t first_argument = call->kind() == prim::CallFunction ? 1 : 0;
    const Graph& source = **body;
    ValueMap values;
    for (size_t i = 0; i < source.inputs().size(); ++i) {
      values[source.inputs()[i]] = call->input(i + first_argument);
    }
    const Node* before = call->previous();
    const std::vector<Value*> results = graph_.copy_nodes(source.body(), call, values);
    Node* first = before != nullptr ? before->next() : call->owning_block()->first();
    const std::string function = (*callee)->qualname().qualifiedName();
    for (Node* node = first; node != call; node = node->next()) {
      add_caller(*node, call->location(), function);
    }
    for (size_t i = 0; i < results.size(); ++i) {
      call->output(i)->replace_all_uses_with(results[i]);
    }
    active_.push_back(*callee);
    // The copied nodes may hold calls themselves.
    auto refusal = inline_between(first, call);
    active_.pop_back();
    if (!refusal) {
      Node* const named = call->kind() == prim::CallFunction ? call->input(0)->node() : nullptr;
      call->erase();
      if (named != nullptr && !named->output()->has_uses()) {
        named->erase();  // nobody else calls it, and its text means nothing without the module
      }
      changed_ = true;
    }
    return refusal;
  }

  // The nodes from `first` to before `end`, null meaning the end of the block.
  std::optional<Refusal> inline_between(Node* first, const Node* end) {
    for (Node* node = first; node != end;) {
      Node* next = node->next();  // a call erases itself and its function's constant, which stands before it
      if (node->kind() == prim::CallFunction || node->kind() == prim::CallMethod) {
        if (auto refusal = inline_call(node)) {
          return refusal;
        }
      } else {
        for (const Block* nested : node->blocks()) {
          if (auto refusal = inline_in(*nested)) {
            return refusal;
          }
        }
        // A fork's subgraph is a graph of its own, which is planned, and inlined, on its own.
      }
      node = next;
    }
    return std::nullopt;
  }

  static void add_caller(Node& node, const SourceLocationPtr& caller, const std::string& function) {
    node.set_location(with_caller(node.location(), caller, function));
    for (const Block* block : node.blocks()) {
      for_each_node(*block, [&](Node* nested) { nested->set_location(with_caller(nested->location(), caller, function)); });
    }
  }

  Graph& graph_;
  FunctionTable& functions_;
  std::vector<torch::jit::Function*> active_;
  bool changed_ = false;
};

}  // namespace

OrRefusal<bool> inline_calls(Graph& graph, FunctionTable& functions) {
  Inliner inliner(graph, functions);
  if (auto refusal = inliner.inline_in(graph.body())) {
    return *refusal;
  }
  return inliner.changed();
}

}  // namespace sconce
