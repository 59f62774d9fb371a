// Operators on kernels, beside the operators themselves.
#pragma once

#include "fusion/group_compilers.h"
#include "plan/plan.h"

#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/core/stack.h>

#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace sconce::testing {

// Kernels that are compiled before their first run, and counted.
class CountedKernels final : public GroupCompiler {
 public:
  struct Counts {
    size_t prepared = 0;
    size_t refused = 0;
    size_t prepared_again = 0;
    size_t runs = 0;
  };

  explicit CountedKernels(size_t lanes) : inner_(make_blocking_kernels(lanes)) {}
  c10::Device device() const override { return c10::kCPU; }
  KernelPtr make_kernel(const NodeGroup& group) const override;
  const Counts& counts() const { return counts_; }

 private:
  const std::unique_ptr<GroupCompiler> inner_;
  mutable Counts counts_;
};

// Returns a plan of the graph whose groups of nodes have kernels.
std::unique_ptr<Plan> plan_with_kernels(const std::string& text, const GroupCompiler& kernels);

// The vectors that this processor has.
std::vector<size_t> kernel_widths();

// A call of one operator: an argument of each position is given in each call, or is a constant.
struct OperatorCall {
  c10::OperatorHandle op;
  std::vector<std::optional<c10::IValue>> constants;  // by position; nothing: given in each call
  std::vector<std::string> types;                     // by position: "Tensor", "int", "float"

  std::string text() const;  // a graph of this one node
};

// What a call returned, or the message with which it raised.
struct Outcome {
  std::optional<at::Tensor> result;
  std::string error;
};

// The call on a plan with kernels.
class KernelCall {
 public:
  KernelCall(const OperatorCall& call, size_t lanes);
  Outcome run(const std::vector<c10::IValue>& given);
  // Returns whether the last run was computed by a kernel.
  bool ran_kernel() const { return ran_kernel_; }

 private:
  CountedKernels kernels_;
  std::unique_ptr<Plan> plan_;
  bool ran_kernel_ = false;
};

// Returns the results of a run of the plan, or the message with which it raised.
std::pair<std::vector<at::Tensor>, std::string> results_of(const Plan& plan, const std::vector<c10::IValue>& operands);

// The call by LibTorch.
Outcome run_eager(const OperatorCall& call, const std::vector<c10::IValue>& given);

}  // namespace sconce::testing
