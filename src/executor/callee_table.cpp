#include "executor/callee_table.h"

#include "executor/compile.h"

#include <ATen/core/function.h>

namespace sconce {

struct CalleeTable::Entry {
  std::unique_ptr<Plan> plan;
  Callee callee;
};

CalleeTable::CalleeTable(const Options& options) : options_(options) {}
CalleeTable::~CalleeTable() { users.wait(); }

const Callee& CalleeTable::find(torch::jit::Function& function) {
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    if (const auto found = entries_.find(&function); found != entries_.end()) {
      return found->second->callee;
    }
  }
  // Planned outside the lock. If two threads plan one function at the same time, the first plan is kept.
  auto entry = std::make_unique<Entry>();
  if (function.isGraphFunction()) {
    const std::string name = function.qualname().qualifiedName();
    const Graph* graph = functions_.graph_of(function).value_or_throw("sconce cannot run " + name);
    entry->plan = plan(*graph, name).value_or_throw("sconce cannot run " + name);
  }
  entry->callee = {&function, entry->plan.get()};
  const std::lock_guard<std::mutex> lock(mutex_);
  return entries_.emplace(&function, std::move(entry)).first->second->callee;
}

Expected<std::unique_ptr<Plan>> CalleeTable::plan_subgraph(const Graph& graph) { return plan(graph, "a subgraph"); }

std::vector<RefusalExplanation> CalleeTable::refusals() const {
  const std::lock_guard<std::mutex> lock(mutex_);
  return refusals_;
}

Expected<std::unique_ptr<Plan>> CalleeTable::plan(const Graph& graph, const std::string& name) {
  CompileSettings settings(options_);
  settings.name = name;
  settings.callees = this;
  settings.functions = &functions_;
  settings.asks_gradients = true;
  auto compiled = compile_method(graph.clone(), settings);
  if (!compiled) {
    return compiled.refusal();
  }
  const std::lock_guard<std::mutex> lock(mutex_);
  for (RefusalExplanation& refusal : compiled->refusals) {
    refusal.what += " in " + name;
    refusals_.push_back(std::move(refusal));
  }
  return std::move(compiled->plan);
}

}  // namespace sconce
