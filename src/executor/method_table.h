// MethodTable: the methods of a class of modules, ready to run on any module of the class.
#pragma once

#include "executor/callee_table.h"
#include "executor/executor_impl.h"
#include "passes/freeze/module_constants.h"

#include <sconce/module.h>
#include <sconce/options.h>

#include <ATen/core/function_schema.h>
#include <ATen/core/ivalue.h>

#include <atomic>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

namespace torch::jit {
struct Function;
}

namespace sconce {

// A method takes the module as its first argument, and keeps nothing of it. So modules of one class share a table, unless it
// is frozen: its methods then have the constants of one module.
class MethodTable {
 public:
  struct Method {
    std::string name;
    const c10::FunctionSchema& schema;  // the function's, which the table's modules keep alive
    std::shared_ptr<GraphExecutor::Impl> program;
    const Method* next;
    std::vector<bool> takes_tensor;  // which arguments may be any tensor

    // Checks the arguments, the module among them, against the schema: types, counts, names. Fills in defaults. Throws
    // c10::Error in LibTorch's words.
    void check(std::vector<c10::IValue>& arguments, const Kwargs& keyword_arguments) const;
  };

  // `module`: the one to be frozen, if the options say so; of others, only the classes in it are read.
  MethodTable(const c10::IValue& module, const Options& options,
              FunctionTable::OwnCode own_code = FunctionTable::OwnCode::kKept);

  // Returns what runs a function, which is no method. Throws c10::Error if sconce refuses it.
  static std::shared_ptr<GraphExecutor::Impl> program_of(torch::jit::Function& function, const Options& options);

  const Options& options() const { return options_; }

  // Returns a method or a hook, which is compiled on the first request and valid as long as the table. `module`: one of the
  // table's. Throws c10::Error if the class has no such method, or if sconce refuses it. Takes no lock once it is compiled.
  const Method& method(const std::string& name, const c10::IValue& module);

  // Returns whether methods have the constants of a module.
  bool has_constants();
  void wait_for_compiles();
  // Drops the recorded calls of these modules, which are destroyed.
  void forget(const DestroyedModules& modules);

 private:
  const Method* find(const std::string& name) const;
  std::unique_ptr<Method> make_method(const std::string& name, const c10::IValue& module);
  const ModuleConstants& find_constants(const c10::IValue& module);

  const Options options_;
  const std::shared_ptr<CalleeTable> callees_;
  std::mutex mutex_;                          // held while a method is made
  std::optional<ModuleConstants> constants_;  // of a frozen module, after its first method was compiled
  std::vector<std::unique_ptr<Method>> methods_;
  std::atomic<const Method*> first_{nullptr};  // of a list that only grows
};

}  // namespace sconce
