// The functions and methods of a loaded program, as our graphs.
#pragma once

#include "base/expected.h"
#include "ir/graph.h"

#include <memory>
#include <mutex>
#include <unordered_map>

namespace torch::jit {
struct CompilationUnit;
struct Function;
}  // namespace torch::jit

namespace sconce {

// Converts each function once, when it is first asked for. Thread-safe.
//
// A function is known by its address. The table keeps the code of every method alive, so that no other function comes to lie
// at the address: an object of another module may be passed in and the module be gone at the next call.
class FunctionTable {
 public:
  // The graph of the function as it was written: calls not inlined. The table keeps it.
  Expected<const Graph*> graph_of(torch::jit::Function& function);

  // The function that a prim::CallFunction or prim::CallMethod calls; null for a method of an interface, which is known only
  // when it runs. Refuses a method that the class does not have.
  static Expected<torch::jit::Function*> callee_of(const Node& call);

 private:
  struct Entry {
    std::unique_ptr<Graph> graph;
    std::shared_ptr<const torch::jit::CompilationUnit> unit;
  };
  std::mutex mutex_;
  std::unordered_map<torch::jit::Function*, Entry> graphs_;
};

}  // namespace sconce
