// The functions and methods of a loaded program, as sconce graphs.
#pragma once

#include "ir/expected.h"
#include "ir/graph.h"

#include <memory>
#include <mutex>
#include <unordered_map>

namespace torch::jit {
struct Function;
}

namespace sconce {

// Converts each function once, on first use. Thread-safe.
class FunctionTable {
 public:
  // Returns the graph of the function as written, with its calls. The table owns it.
  Expected<const Graph*> graph_of(torch::jit::Function& function);

  // Returns the function that a prim::CallFunction or prim::CallMethod calls. Null for a method of an interface, whose
  // callee is known only at run time. Refuses a method that the class does not have.
  static Expected<torch::jit::Function*> callee_of(const Node& call);

 private:
  std::mutex mutex_;
  std::unordered_map<torch::jit::Function*, std::unique_ptr<Graph>> graphs_;
};

}  // namespace sconce
