#include "passes/required/inline_calls.h"

#include "analysis/memory/object_identity.h"

#include <ATen/core/function.h>

#include <algorithm>
#include <memory>
#include <unordered_map>
#include <vector>

namespace sconce {
namespace {

// The functions that a graph calls, directly or not, and the work shared by all their calls.
class Program {
 public:
  Program(const Graph& graph, FunctionTable& functions, const std::function<void(Graph&)>& simplify)
      : functions_(functions), simplify_(simplify) {
    if (simplify_ != nullptr) {
      visit(graph);
    }
  }

  // Returns whether the function's body is simplified once for all its calls.
  bool is_shared(torch::jit::Function* function) const {
    const auto found = calls_.find(function);
    return found != calls_.end() && found->second > 1 && !observes_identity_;
  }

  Expected<const Graph*> body_as_written(torch::jit::Function& function) { return functions_.graph_of(function); }
  // The body of a shared function: its calls inlined, simplified.
  Expected<const Graph*> shared_body(torch::jit::Function& function);

  // The functions whose bodies are being inlined. A call of one of them is recursion.
  std::vector<torch::jit::Function*> active;

 private:
  void visit(const Graph& graph) {
    observes_identity_ =
        observes_identity_ || observes_identity(graph, [](const Node& call) { return graph_function(call) != nullptr; });
    for_each_node(graph.body(), [&](Node* node) {
      torch::jit::Function* callee = graph_function(*node);
      if (callee != nullptr && ++calls_[callee] == 1) {
        if (const auto body = functions_.graph_of(*callee)) {
          visit(**body);
        }
      }
    });
  }

  // Returns the function that the node calls. Null if the node is not a call, or if its callee is known only at run
  // time.
  static torch::jit::Function* graph_function(const Node& node) {
    if (node.kind() != prim::CallFunction && node.kind() != prim::CallMethod) {
      return nullptr;
    }
    const auto callee = FunctionTable::callee_of(node);
    return callee && *callee != nullptr && (*callee)->isGraphFunction() ? *callee : nullptr;
  }

  FunctionTable& functions_;
  const std::function<void(Graph&)>& simplify_;
  std::unordered_map<torch::jit::Function*, size_t> calls_;  // number of calls in the graph and in functions
  bool observes_identity_ = false;
  std::unordered_map<torch::jit::Function*, std::unique_ptr<Graph>> shared_bodies_;
};

class Inliner {
 public:
  Inliner(Graph& graph, Program& program) : graph_(graph), program_(program) {}

  Expected<void> run() { return inline_in(graph_.body()); }

  bool changed() const { return changed_; }

 private:
  Expected<void> inline_in(const Block& block) { return inline_between(block.first(), nullptr); }

  Expected<void> inline_call(Node* call) {
    const auto callee = FunctionTable::callee_of(*call);
    if (!callee) {
      return callee.refusal();
    }
    // Stays a call: its callee or its depth of recursion is known only at run time, or it has no graph.
    std::vector<torch::jit::Function*>& active = program_.active;
    if (*callee == nullptr || !(*callee)->isGraphFunction() || std::ranges::find(active, *callee) != active.end()) {
      return {};
    }
    const bool is_shared = program_.is_shared(*callee);
    const auto body = is_shared ? program_.shared_body(**callee) : program_.body_as_written(**callee);
    if (!body) {
      return body.refusal();
    }
    // A method gets its object as first input; a function is the operand before its arguments.
    const size_t first_argument = call->kind() == prim::CallFunction ? 1 : 0;
    const Graph& source = **body;
    ValueMap values;
    for (size_t i = 0; i < source.inputs().size(); ++i) {
      values[source.inputs()[i]] = call->input(i + first_argument);
    }
    const Node* before = call->previous();
    const std::vector<Value*> results = graph_.copy_nodes(source.body(), call, values);
    Node* first = before != nullptr ? before->next() : call->owning_block()->first();
    InlinedCall inlined(call->location(), (*callee)->qualname().qualifiedName());
    for (Node* node = first; node != call; node = node->next()) {
      extend_locations(*node, inlined);
    }
    for (size_t i = 0; i < results.size(); ++i) {
      call->output(i)->replace_all_uses_with(results[i]);
    }
    Expected<void> done;
    if (!is_shared) {
      active.push_back(*callee);
      done = inline_between(first, call);
      active.pop_back();
    }
    if (done) {
      Node* const named = call->kind() == prim::CallFunction ? call->input(0)->node() : nullptr;
      call->erase();
      if (named != nullptr && !named->output()->has_uses()) {
        named->erase();  // it has no other use, and its text form needs the module
      }
      changed_ = true;
    }
    return done;
  }

  // Inlines calls from `first` to before `end`; null means the end of the block.
  Expected<void> inline_between(Node* first, const Node* end) {
    for (Node* node = first; node != end;) {
      Node* next = node->next();  // inlining a call erases it and the constant before it that names the function
      if (node->kind() == prim::CallFunction || node->kind() == prim::CallMethod) {
        if (auto done = inline_call(node); !done) {
          return done.refusal();
        }
      } else {
        for (const Block* nested : node->blocks()) {
          if (auto done = inline_in(*nested); !done) {
            return done.refusal();
          }
        }
        // A fork's subgraph is a graph of its own, which is planned and inlined separately.
      }
      node = next;
    }
    return {};
  }

  static void extend_locations(Node& node, InlinedCall& call) {
    node.set_location(call.extended(node.location()));
    for (const Block* block : node.blocks()) {
      for_each_node(*block, [&](Node* nested) { nested->set_location(call.extended(nested->location())); });
    }
  }

  Graph& graph_;
  Program& program_;
  bool changed_ = false;
};

Expected<const Graph*> Program::shared_body(torch::jit::Function& function) {
  if (const auto found = shared_bodies_.find(&function); found != shared_bodies_.end()) {
    return found->second.get();
  }
  const auto written = body_as_written(function);
  if (!written) {
    return written.refusal();
  }
  std::unique_ptr<Graph> body = (*written)->clone();
  active.push_back(&function);
  const auto inlined = Inliner(*body, *this).run();
  active.pop_back();
  if (!inlined) {
    return inlined.refusal();
  }
  simplify_(*body);
  return shared_bodies_.emplace(&function, std::move(body)).first->second.get();
}

}  // namespace

Expected<bool> inline_calls(Graph& graph, FunctionTable& functions, const std::function<void(Graph&)>& simplify) {
  Program program(graph, functions, simplify);
  Inliner inliner(graph, program);
  if (auto done = inliner.run(); !done) {
    return done.refusal();
  }
  return inliner.changed();
}

}  // namespace sconce
