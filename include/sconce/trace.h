// trace: a plan for a plain C++ function on tensors.
#pragma once

#include <sconce/explanation.h>
#include <sconce/options.h>

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

namespace sconce {

// Lists the traces of a function, and who serves their calls.
struct TraceExplanation {
  struct Trace {
    std::string arguments;            // "Float[4,3] requires_grad, Float[3]"
    uint64_t calls = 0;               // by the plan, or by the function itself if the trace was refused
    std::string refusal;              // why the function itself serves these arguments; empty if a plan does
    std::optional<Explanation> plan;  // null for a refused trace
  };
  std::vector<Trace> traces;
  // Why a plan could not leave sizes open. Each size then has a trace of its own, recorded on its second call.
  std::vector<std::string> why_sizes_are_fixed;
};

// A function of tensors, and the plans that were made of it. Thread-safe if the function is.
//
// A call with arguments of a kind runs the function and records the ATen operators that it calls. Later calls run the
// recorded graph as a plan: it is optimized and compiled like a model's, and gradients flow through it. A kind is what the
// trace may depend on: dtypes, devices, sizes and strides, which arguments require a gradient, grad mode, autocast. The
// first kind is recorded at once, a later one on its second call. A call that differs from an earlier one in sizes alone is
// recorded with symbolic sizes, and its plan also serves later sizes. Plans beyond `options.plan_cache_capacity()`
// replace the least recently used ones.
//
// All that the function computes without operators is a constant of the trace: numbers of C++, branches, the state of
// objects, and which tensors it reads from elsewhere. Their contents are read in each call, and a change of their sizes or
// dtypes is seen; another tensor in the same variable is not. A function is not replayed for a kind, and runs in each call,
// if it reads an element of a tensor (`.item()`) or memory that no tensor owns (`at::from_blob` without a deleter), if its
// operators have results whose sizes depend on elements, or if it switches grad mode or calls a torch::autograd::Function
// while gradients are recorded. `explain` has the reason.
class TracedFunction {
 public:
  using Function = std::function<std::vector<at::Tensor>(std::vector<at::Tensor>)>;

  TracedFunction(Function function, const Options& options);

  // Throws what the function or the recorded operators throw.
  std::vector<at::Tensor> operator()(std::vector<at::Tensor> arguments) const;

  TraceExplanation explain() const;
  // Waits until the background thread has no compile of this function left.
  void wait_for_compiles() const;

 private:
  class Impl;
  std::shared_ptr<Impl> impl_;
};

// Makes a traced function. Copies of it share their plans.
TracedFunction trace(TracedFunction::Function function, const Options& options = {});

}  // namespace sconce
