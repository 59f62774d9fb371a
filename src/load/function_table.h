// The functions and methods of a loaded program, as our graphs.
#pragma once

#include "base/expected.h"
#include "ir/graph.h"

#include <memory>
#include <mutex>
#include <unordered_map>

namespace torch::jit {
struct Function;
}

namespace sconce {

// Converts each function once, when it is first asked for. Thread-safe.
class FunctionTable {
 public:
  // The graph of the function as it was written: calls not inlined. The table keeps it.
  Expected<const Graph*> graph_of(torch::jit::Function& function);

  // The function that a prim::CallFunction or prim::CallMethod calls; null for a method of an interface, which is known only
  // when it runs. Refuses a method that the class does not have.
  static Expected<torch::jit::Function*> callee_of(const Node& call);

 private:
  std::mutex mutex_;
  std::unordered_map<torch::jit::Function*, std::unique_ptr<Graph>> graphs_;
};

}  // namespace sconce
