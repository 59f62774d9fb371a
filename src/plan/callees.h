// Callees: the functions that a plan calls while it runs, because they were not inlined.
#pragma once

#include "base/expected.h"
#include "ir/graph.h"
#include "plan/autograd_use.h"
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
  const Plan* plan;  // null for a built-in function, such as TorchBind's
};

// Plans functions that are known, or whose recursion is bounded, only when a plan runs: methods of interfaces, recursive
// functions, context managers and forked subgraphs. Shared by all plans of a module, which it must outlive. Thread-safe.
class Callees {
 public:
  virtual ~Callees() = default;
  // Returns the function's plan, made on first use and valid as long as this object. Throws c10::Error with the refusal's
  // text.
  virtual const Callee& find(torch::jit::Function& function) = 0;
  // Plans a graph that a node holds (prim::fork).
  virtual Expected<std::unique_ptr<Plan>> plan_subgraph(const Graph& graph) = 0;

  // Counts forked tasks, which may call functions. The destructor of a derived class waits for them before it destroys a
  // plan.
  Users users;
};

// Calls a function: replaces the arguments on the stack by the result. `autograd`: of the calling run. Throws what the
// callee throws, and c10::Error if calls nest so deeply that the thread's stack would overflow.
void call(const Callee& callee, torch::jit::Stack& stack, AutogradUse autograd);

}  // namespace sconce
