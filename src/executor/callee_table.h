// CalleeTable: the programs that a module's plans run: called functions, and bodies of forks and awaitables.
#pragma once

#include "load/function_table.h"
#include "plan/callees.h"

#include <sconce/explanation.h>
#include <sconce/graph_executor.h>
#include <sconce/options.h>

#include <memory>
#include <mutex>
#include <string>
#include <unordered_map>
#include <vector>

namespace sconce {

// Each program is an executor of its own, with the module's passes: its plans are specialized on the arguments of its calls.
// Its generic plan is made when the program is first asked for.
//
// Compiles in the background hold the table weakly:
//   Module, GraphExecutor ──► CalleeTable ──► program's executor ··(weak)··► CalleeTable
class CalleeTable final : public Callees, public std::enable_shared_from_this<CalleeTable> {
 public:
  // `module`: whose methods call; None for a graph of no module.
  static std::shared_ptr<CalleeTable> make(const Options& options, const c10::IValue& module = {},
                                           FunctionTable::OwnCode own_code = FunctionTable::OwnCode::kKept);
  ~CalleeTable() override;

  FunctionTable& functions() { return functions_; }
  const AssignedAttributes& assigned() const override { return functions_.assigned(); }
  const Callee& find(torch::jit::Function& function) override;
  Expected<std::shared_ptr<Program>> find(const std::shared_ptr<const Graph>& subgraph) override;

  // Returns what the programs say that ran so far, in no order.
  std::vector<Explanation> explain() const;
  void clear_caches();
  void wait_for_compiles() const;

 private:
  using Executor = std::shared_ptr<GraphExecutor::Impl>;
  struct Entry {
    Callee callee;
    Executor executor;
    std::shared_ptr<const Graph> subgraph;  // of a program that is no function
  };

  CalleeTable(const Options& options, const c10::IValue& module, FunctionTable::OwnCode own_code);
  Expected<Executor> make_executor(const Graph& graph, const std::string& name);
  // Requires `mutex_`. Returns null for what has no entry yet.
  const Entry* entry_of(const void* key) const;
  std::vector<Executor> executors() const;

  const Options options_;
  FunctionTable functions_;
  mutable std::mutex mutex_;
  // By the address of the function or graph. functions_ and the entry keep them alive.
  std::unordered_map<const void*, std::unique_ptr<Entry>> entries_;
};

}  // namespace sconce
