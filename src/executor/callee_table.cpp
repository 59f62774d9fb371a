#include "executor/callee_table.h"

#include "executor/compile.h"
#include "executor/executor_impl.h"

#include <ATen/core/function.h>

namespace sconce {
namespace {

// Returns "subgraph (model.py:12:8)".
std::string name_of_subgraph(const Graph& graph) {
  for (const Node* node : graph.body().nodes()) {
    if (node->location() != nullptr) {
      if (const std::string place = node->location()->file_line_column(); !place.empty()) {
        return "subgraph (" + place.substr(place.rfind('/') + 1) + ")";
      }
    }
  }
  return "a subgraph";
}

}  // namespace

std::shared_ptr<CalleeTable> CalleeTable::make(const Options& options, const c10::IValue& module,
                                               FunctionTable::OwnCode own_code) {
  return std::shared_ptr<CalleeTable>(new CalleeTable(options, module, own_code));
}

// Only the runs of a module's own methods are profiled.
CalleeTable::CalleeTable(const Options& options, const c10::IValue& module, FunctionTable::OwnCode own_code)
    : options_(Options(options).profiled_runs(0)), functions_(module, own_code) {}
CalleeTable::~CalleeTable() { users.wait(); }

// Made outside the lock, here and for subgraphs. If two threads make one executor at the same time, the first one is kept.
const Callee& CalleeTable::find(torch::jit::Function& function) {
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    if (const Entry* found = entry_of(&function)) {
      return found->callee;
    }
  }
  auto entry = std::make_unique<Entry>();
  if (function.isGraphFunction()) {
    const std::string name = function.qualname().qualifiedName();
    const Graph* graph = functions_.graph_of(function).value_or_throw("sconce cannot run " + name);
    entry->executor = make_executor(*graph, name).value_or_throw("sconce cannot run " + name);
  }
  entry->callee = {&function, entry->executor.get()};
  const std::lock_guard<std::mutex> lock(mutex_);
  return entries_.emplace(&function, std::move(entry)).first->second->callee;
}

Expected<std::shared_ptr<Program>> CalleeTable::find(const std::shared_ptr<const Graph>& subgraph) {
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    if (const Entry* found = entry_of(subgraph.get())) {
      return std::shared_ptr<Program>(found->executor);
    }
  }
  auto executor = make_executor(*subgraph, name_of_subgraph(*subgraph));
  if (!executor) {
    return executor.refusal();
  }
  auto entry = std::make_unique<Entry>(Entry{{}, std::move(*executor), subgraph});
  const std::lock_guard<std::mutex> lock(mutex_);
  return std::shared_ptr<Program>(entries_.emplace(subgraph.get(), std::move(entry)).first->second->executor);
}

std::vector<Explanation> CalleeTable::explain() const {
  std::vector<Explanation> explanations;
  for (const Executor& executor : executors()) {
    if (Explanation explanation = executor->explain(); explanation.counters.invocations > 0) {
      explanations.push_back(std::move(explanation));
    }
  }
  return explanations;
}

void CalleeTable::clear_caches() {
  for (const Executor& executor : executors()) {
    executor->clear_cache();
  }
}

void CalleeTable::wait_for_compiles() const {
  for (const Executor& executor : executors()) {
    executor->wait_for_compiles();
  }
}

Expected<CalleeTable::Executor> CalleeTable::make_executor(const Graph& graph, const std::string& name) {
  CompileSettings settings(options_);
  settings.name = name;
  settings.callees = this;
  settings.functions = &functions_;
  auto compiled = compile_method(graph.clone(), settings);
  if (!compiled) {
    return compiled.refusal();
  }
  return std::make_shared<GraphExecutor::Impl>(std::move(*compiled), name, options_, *this);
}

const CalleeTable::Entry* CalleeTable::entry_of(const void* key) const {
  const auto found = entries_.find(key);
  return found == entries_.end() ? nullptr : found->second.get();
}

std::vector<CalleeTable::Executor> CalleeTable::executors() const {
  std::vector<Executor> executors;
  const std::lock_guard<std::mutex> lock(mutex_);
  for (const auto& [key, entry] : entries_) {
    if (entry->executor != nullptr) {
      executors.push_back(entry->executor);
    }
  }
  return executors;
}

}  // namespace sconce
