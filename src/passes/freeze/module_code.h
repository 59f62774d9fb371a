// The code that a call of a module may run.
#pragma once

#include "ir/graph.h"
#include "passes/freeze/module_objects.h"

#include <deque>
#include <memory>
#include <set>
#include <unordered_set>
#include <utility>
#include <vector>

namespace sconce {

// The bodies of all methods and hooks of a module, with their calls inlined; and the bodies of calls and tasks that are not
// inlined and get an object of the module as an operand.
class ModuleCode {
 public:
  struct Body {
    std::unique_ptr<Graph> graph;
    std::vector<const ModuleObject*> inputs;  // as in ModuleObjects::objects_in
  };

  // Collects the bodies. Marks in `objects` the submodules that a body may replace. Refuses code that cannot be analyzed.
  static Expected<ModuleCode> collect(ModuleObjects& objects, FunctionTable& functions);

  std::deque<Body>& bodies() { return bodies_; }
  // Returns whether the node is a call or fork whose body is among these.
  bool follows(const Node& node) const { return followed_.count(&node) != 0; }

 private:
  Expected<void> add_all(const ModuleObjects& objects, FunctionTable& functions);
  Expected<void> add(torch::jit::Function& function, std::vector<const ModuleObject*> inputs, const ModuleObjects& objects,
                     FunctionTable& functions);
  Expected<void> add(const Graph& source, std::vector<const ModuleObject*> inputs, const ModuleObjects& objects,
                     FunctionTable& functions);
  Expected<void> follow(const Node& node, const ObjectMap& known, const ModuleObjects& objects, FunctionTable& functions);
  bool mark_replaced(ModuleObjects& objects) const;

  std::deque<Body> bodies_;
  std::set<std::pair<const torch::jit::Function*, std::vector<const ModuleObject*>>> functions_;
  std::unordered_set<const Node*> followed_;
  int depth_ = 0;  // of nested tasks
};

}  // namespace sconce
