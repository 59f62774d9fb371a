// Callees: what a plan calls while it runs, because it was not inlined.
#pragma once

#include "analysis/memory/assigned_attributes.h"
#include "base/expected.h"
#include "ir/graph.h"
#include "plan/fork_pool.h"
#include "plan/program.h"

#include <memory>

namespace torch::jit {
struct Function;
}

namespace sconce {

struct Callee {
  torch::jit::Function* function;
  Program* program;  // null for a built-in function, such as TorchBind's
};

// Makes programs of functions that are known, or whose recursion is bounded, only when a plan runs: methods of interfaces,
// recursive functions, context managers; and of forked subgraphs. Shared by all plans of a module, which it must outlive.
// Thread-safe.
class Callees {
 public:
  virtual ~Callees() = default;
  // Returns the function's program, made on first use and valid as long as this object. Throws c10::Error with the refusal's
  // text.
  virtual const Callee& find(torch::jit::Function& function) = 0;
  // Returns the program of a graph that nodes hold (prim::fork), made on first use. Copies of a node share their graph, so
  // the plans of a method share the program.
  virtual Expected<std::shared_ptr<Program>> find(const std::shared_ptr<const Graph>& subgraph) = 0;

  // Returns the attributes that any of the program's code assigns, also what the plan's graph does not call.
  virtual const AssignedAttributes& assigned() const = 0;

  // Counts forked tasks, which run programs. The destructor of a derived class waits for them before it destroys a program.
  InFlightCount users;
};

// Calls a function: replaces the arguments on the stack by the result. Throws what the callee throws, and c10::Error if
// calls nest so deeply that the thread's stack would overflow.
void call(const Callee& callee, torch::jit::Stack& stack);

}  // namespace sconce
