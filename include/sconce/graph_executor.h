// GraphExecutor: runs one graph for any arguments.
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

// Owns a graph and the plans made of it. Thread-safe: any number of threads may call `run` at the same time, as long as the
// graph writes no attribute of an object that two of them share.
class GraphExecutor {
 public:
  class Impl;

  // Takes ownership of a graph and makes its generic plan. Calls of script functions and methods in the graph are not
  // inlined: their functions have plans of their own. `self`, when given, is the graph's first input in every run, and the
  // caller's stack does not hold it. Throws c10::Error if the graph is null or malformed, or if it cannot be planned; the
  // message then is the refusal's.
  GraphExecutor(std::unique_ptr<Graph> graph, std::string name, const Options& options,
                std::optional<c10::IValue> self = std::nullopt);
  ~GraphExecutor();
  GraphExecutor(const GraphExecutor&) = delete;
  GraphExecutor& operator=(const GraphExecutor&) = delete;

  // Replaces the inputs on top of the stack by the outputs. Values below the inputs stay. The types of the inputs are not
  // checked; Module::forward checks them.
  //
  // Throws what an operator throws, with the node and the model's source lines added, and c10::Error if the stack holds
  // fewer values than the graph has inputs. The executor stays usable after an exception; some or all inputs have then been
  // removed from the stack.
  void run(torch::jit::Stack& stack);
  // Like `run`, but the stack also holds `self`, below the arguments: a module of the class that the graph was made of, with
  // attributes of its own.
  void run_with_self(torch::jit::Stack& stack);

  const std::string& name() const;
  // Returns the graph that plans are made of. Its calls are inlined; functions with several calls have been simplified,
  // unless optimization is off; the graph of a frozen module is frozen. Valid as long as the executor.
  const Graph& graph() const;

  Explanation explain() const;
  // Drops every plan except the generic plan, and resets the counters.
  void clear_cache();
  // Waits until the background thread has no compile of this executor left. Calls may go on, and ask for more.
  void wait_for_compiles() const;

  // Everything the executor holds, as text, for debugging.
  struct DebugState {
    std::string graph;
    std::vector<PlanExplanation> plans;
  };
  DebugState debug_state() const;

 private:
  friend class Module;
  GraphExecutor(std::shared_ptr<Impl> impl, std::optional<c10::IValue> self);
  const std::shared_ptr<Impl> impl_;  // shared by modules that share plans
  const std::optional<c10::IValue> self_;
};

// Returns the graph that this thread ran last, as it is after all passes. Null if the thread ran none, or if the executor
// has been destroyed.
std::shared_ptr<const Graph> last_executed_graph();

}  // namespace sconce
