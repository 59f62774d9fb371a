// CalleeTable: the plans of functions that a module's plans call.
#pragma once

#include "load/function_table.h"
#include "plan/callees.h"

#include <sconce/explanation.h>
#include <sconce/options.h>

#include <memory>
#include <mutex>
#include <string>
#include <unordered_map>
#include <vector>

namespace sconce {

// Plans functions on their first call, with the module's passes.
class CalleeTable final : public Callees {
 public:
  explicit CalleeTable(const Options& options);
  ~CalleeTable() override;
  FunctionTable& functions() { return functions_; }
  const Callee& find(torch::jit::Function& function) override;
  Expected<std::unique_ptr<Plan>> plan_subgraph(const Graph& graph) override;
  // Returns the passes that failed in the plans made so far, with the name of the function.
  std::vector<RefusalExplanation> refusals() const;

 private:
  Expected<std::unique_ptr<Plan>> plan(const Graph& graph, const std::string& name);

  struct Entry;
  const Options options_;
  FunctionTable functions_;
  mutable std::mutex mutex_;
  std::unordered_map<torch::jit::Function*, std::unique_ptr<Entry>> entries_;  // functions_ keeps their code alive
  std::vector<RefusalExplanation> refusals_;
};

}  // namespace sconce
