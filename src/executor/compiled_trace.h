// CompiledTrace: runs a graph that a tracer wrote, for calls that its owner has checked.
#pragma once

#include "executor/callee_table.h"
#include "executor/compile.h"
#include "executor/plan_cache/striped_counter.h"
#include "plan/program.h"

#include <sconce/explanation.h>
#include <sconce/options.h>

#include <atomic>
#include <memory>
#include <mutex>
#include <string>

namespace sconce {

// The facts on the graph's inputs hold in every run, so that there is one plan and no argument spec. The graph was recorded
// below autograd and autocast, and runs without both. Thread-safe.
class CompiledTrace final : public Program, public std::enable_shared_from_this<CompiledTrace> {
 public:
  // Begins to compile: in the background, or here with CompileMode::kBlocking.
  static std::shared_ptr<CompiledTrace> make(std::unique_ptr<Graph> graph, std::string name, const Options& options,
                                             TraceSettings settings = {});
  ~CompiledTrace() override;

  // Returns whether there is a plan. There is none yet, or none at all if the compile was refused.
  bool is_ready() const { return plan_.load(std::memory_order_acquire) != nullptr; }
  // Returns why there is no plan: it is being compiled, or the compile was refused. Does not wait for it.
  std::string why_no_plan() const;
  // Requires `is_ready`.
  void run(torch::jit::Stack& stack) override;

  Explanation explain() const;
  void wait_for_compile() const;

 private:
  CompiledTrace(std::unique_ptr<Graph> graph, std::string name, const Options& options, TraceSettings settings);
  void compile() noexcept;

  const std::string name_;
  const Options options_;
  const size_t nodes_;
  const std::shared_ptr<CalleeTable> callees_;
  std::atomic<const Plan*> plan_{nullptr};
  std::atomic<bool> is_refused_{false};
  StripedCounter runs_;
  mutable std::mutex mutex_;      // guards what follows
  std::unique_ptr<Graph> graph_;  // until it is compiled
  TraceSettings settings_;
  CompiledMethod compiled_;
};

}  // namespace sconce
