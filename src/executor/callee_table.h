// The functions that a module's plans call.
#pragma once

#include "load/function_table.h"
#include "plan/callees.h"

#include <memory>
#include <mutex>
#include <unordered_map>

namespace sconce {

// Plans functions with the required passes when they are first called.
class CalleeTable final : public Callees {
 public:
  CalleeTable();
  ~CalleeTable() override;
  FunctionTable& functions() { return functions_; }
  const Callee& find(torch::jit::Function& function) override;
  OrRefusal<std::unique_ptr<Plan>> plan_subgraph(const Graph& graph) override;

 private:
  struct Entry;
  FunctionTable functions_;
  std::mutex mutex_;
  std::unordered_map<torch::jit::Function*, std::unique_ptr<Entry>> entries_;
};

}  // namespace sconce
