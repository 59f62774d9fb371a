// What a plan calls while it runs: functions that are not inlined.
#pragma once

#include "base/expected.h"
#include "ir/graph.h"
#include "plan/fork_pool.h"

#include <ATen/core/stack.h>

#include <memory>

namespace torch::jit {
struct Function;
}

namespace sconce {

class Plan;

struct Callee {
  torch::jit::Function* function;
  const Plan* plan;  // null: a function that is built in, TorchBind's for example
};

// Methods of interfaces, recursive functions, context managers and forked subgraphs are known or bounded only when a plan
// runs. Shared by all plans of a module; must outlive them. Thread-safe.
class Callees {
 public:
  virtual ~Callees() = default;
  // Planned when it is first asked for; valid as long as this object. Throws c10::Error with the refusal's text.
  virtual const Callee& find(torch::jit::Function& function) = 0;
  // A plan for a graph that a node holds (prim::fork).
  virtual Expected<std::unique_ptr<Plan>> plan_subgraph(const Graph& graph) = 0;

  // Forked tasks, which may call. The destructor of a derived class waits for them before it destroys a plan.
  Users users;
};

// Replaces the arguments on the stack by the result. Throws what the callee throws, and c10::Error when calls are nested so
// deep that the thread's stack would run out.
void call(const Callee& callee, torch::jit::Stack& stack);

}  // namespace sconce
