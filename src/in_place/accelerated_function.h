// AcceleratedFunction: a function of LibTorch's whose calls run on sconce.
#pragma once

#include "executor/executor_impl.h"

#include <ATen/core/stack.h>
#include <torch/csrc/jit/api/function_impl.h>

#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <unordered_map>

namespace sconce {

// Makes the program that runs a function. Called once, in the function's first call. Throws c10::Error if sconce refuses the
// function. `first`: the first operand of that call, for a method its module; null for a function without arguments.
using MakeProgram = std::function<std::shared_ptr<GraphExecutor::Impl>(const c10::IValue* first)>;

// A function belongs to a class, and its calls name the module they are for: the program takes it as an operand, as every
// copy of a module and every other module of the class shares the function.
//
//   GraphFunction ──► executor of each autocast state (InPlaceExecutor) ──► AcceleratedFunction ──► its program
//
// So all of this lives as long as the function, and must not keep the code of its class alive.
class AcceleratedFunction {
 public:
  AcceleratedFunction(const torch::jit::GraphFunction& function, MakeProgram make_program);

  // Replaces the executors of the function. No other thread may run it meanwhile.
  static void install(torch::jit::GraphFunction& function, MakeProgram make_program);
  // Returns what `install` has put there; null for a function that LibTorch runs.
  static std::shared_ptr<AcceleratedFunction> of(torch::jit::GraphFunction& function);
  // Gives the function its executors back. No other thread may run it meanwhile. Returns whether it was accelerated.
  static bool remove(torch::jit::GraphFunction& function);

  // Runs the function. Returns false, and changes nothing, if sconce refuses it. Throws what LibTorch's interpreter throws
  // where the function fails.
  bool run(torch::jit::Stack& stack);

  const std::string& name() const { return name_; }
  const std::string& qualified_name() const { return qualified_name_; }
  uint64_t calls() const;
  // Why LibTorch runs the function all the same; empty if it does not, or before the first call.
  std::string refusal() const;
  // Null before the first call, and if sconce refuses the function.
  std::shared_ptr<GraphExecutor::Impl> program() const;
  // Drops what is kept for calls of modules that were destroyed although their class was not: recordings, packed weights.
  void forget_destroyed();

 private:
  // Returns null if sconce refuses the function.
  GraphExecutor::Impl* program_for(const torch::jit::Stack& stack);
  void note_module(const torch::jit::Stack& stack);
  // Requires `mutex_`.
  void forget_destroyed_modules();

  const std::string name_;
  const std::string qualified_name_;
  const size_t inputs_;  // operands of a call
  const bool is_immortal_;
  const MakeProgram make_program_;
  std::atomic<GraphExecutor::Impl*> ready_{nullptr};
  std::atomic<bool> is_refused_{false};
  std::atomic<uint64_t> calls_of_libtorch_{0};
  mutable std::mutex mutex_;  // guards what follows
  std::shared_ptr<GraphExecutor::Impl> program_;
  std::string refusal_;
  // Those that calls were for, if the code of their class is immortal: they keep it alive. Their addresses are not reused as
  // long as they are here.
  std::unordered_map<const c10::ivalue::Object*, c10::weak_intrusive_ptr<c10::ivalue::Object>> modules_;
  size_t most_modules_ = 64;                                      // when there are more, destroyed ones are forgotten
  std::atomic<const c10::ivalue::Object*> last_module_{nullptr};  // one of them
};

}  // namespace sconce
