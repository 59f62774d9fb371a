// The functions that a module's plans call.
#pragma once

#include "load/function_table.h"
#include "plan/callees.h"

#include <sconce/options.h>

#include <memory>
#include <mutex>
#include <unordered_map>

namespace sconce {

// Plans functions when they are first called, with the passes of the module.
class CalleeTable final : public Callees {
 public:
  explicit CalleeTable(const Options& options);
  ~CalleeTable() override;
  FunctionTable& functions() { return functions_; }
  const Callee& find(torch::jit::Function& function) override;
  OrRefusal<std::unique_ptr<Plan>> plan_subgraph(const Graph& graph) override;

 private:
  struct Entry;
  const Options options_;
  FunctionTable functions_;
  std::mutex mutex_;
  std::unordered_map<torch::jit::Function*, std::unique_ptr<Entry>> entries_;
};

}  // namespace sconce
