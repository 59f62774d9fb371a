// The functions and methods of a loaded program, as sconce graphs.
#pragma once

#include "analysis/memory/assigned_attributes.h"
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

// Converts each function once, on first use. Thread-safe.
//
// A function is identified by its address. The table keeps the code of every method alive, so that the address cannot be
// reused: an object of another module may be passed in, and that module be destroyed before the next call.
class FunctionTable {
 public:
  // Who keeps the code of the program's own module alive: the table, or the code lives as long as the table anyway, because
  // it owns it (acceleration in place).
  enum class OwnCode { kKept, kOwnsTable };

  FunctionTable() = default;
  // `module`: the program's.
  explicit FunctionTable(const c10::IValue& module, OwnCode own_code = OwnCode::kKept);

  // Returns the attributes that any method or hook of the module's objects assigns, or a function that one of them calls.
  const AssignedAttributes& assigned() const { return assigned_; }

  // Returns the graph of the function as written, with its calls. The table owns it.
  Expected<const Graph*> graph_of(torch::jit::Function& function);

  // Returns the function that a prim::CallFunction or prim::CallMethod calls. Null for a method of an interface, whose
  // callee is known only at run time. Refuses a method that the class does not have.
  static Expected<torch::jit::Function*> callee_of(const Node& call);

 private:
  struct Entry {
    std::unique_ptr<Graph> graph;
    std::shared_ptr<const torch::jit::CompilationUnit> unit;
  };
  AssignedAttributes assigned_;
  const torch::jit::CompilationUnit* not_kept_ = nullptr;  // code that owns the table
  std::mutex mutex_;
  std::unordered_map<torch::jit::Function*, Entry> graphs_;
};

}  // namespace sconce
