// Runs one graph for any arguments.
#pragma once

#include <sconce/explanation.h>
#include <sconce/options.h>

#include <ATen/core/ivalue.h>
#include <ATen/core/stack.h>

#include <memory>
#include <optional>
#include <string>

namespace sconce {

class Graph;

// Thread-safe: any number of threads may call `run` at the same time.
class GraphExecutor {
 public:
  // Takes over a graph. Its calls of script functions and methods run, but are not optimized: inline them before. `self`,
  // when given, is the value of the graph's first input in every run and not part of the caller's stack. Throws c10::Error
  // when the graph is null or not well formed, and with the refusal's text when it cannot be planned at all.
  GraphExecutor(std::unique_ptr<Graph> graph, std::string name, const Options& options,
                std::optional<c10::IValue> self = std::nullopt);
  ~GraphExecutor();
  GraphExecutor(const GraphExecutor&) = delete;
  GraphExecutor& operator=(const GraphExecutor&) = delete;

  // Replaces the inputs on top of the stack by the outputs. Values below the inputs are left alone.
  // Throws what an operator throws, with the node and the model's source line added; the executor stays usable.
  // Throws c10::Error when the stack holds fewer values than the graph has inputs; their types are not checked, as
  // Module::forward does. After an exception the inputs are gone from the stack, or some of them.
  void run(torch::jit::Stack& stack);

  const std::string& name() const;
  // The graph that plans are made of: calls inlined, functions with several calls simplified (unless optimization is off),
  // and frozen, of a frozen module. Alive as long as the executor.
  const Graph& graph() const;

  Explanation explain() const;
  // Forgets every plan but the generic one, and the counters.
  void clear_cache();

  // For debugging: everything the executor holds, in text.
  struct DebugState {
    std::string graph;
    std::vector<PlanExplanation> plans;
  };
  DebugState debug_state() const;

 private:
  friend class Module;
  class Impl;
  explicit GraphExecutor(std::unique_ptr<Impl> impl);
  // As `run`, but the stack holds `self` too, below the arguments.
  void run_with_self(torch::jit::Stack& stack);
  std::unique_ptr<Impl> impl_;
};

// The graph that this thread ran last, after all passes; null when it ran none or its executor is gone.
std::shared_ptr<const Graph> last_executed_graph();

}  // namespace sconce
