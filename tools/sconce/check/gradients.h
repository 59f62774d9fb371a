// The gradients that CASES files define.
#pragma once

#include "tools/sconce/values/compare.h"
#include "tools/sconce/values/value_walk.h"

#include <optional>
#include <string>
#include <vector>

namespace torch::jit {
struct Module;
}

namespace sconce::cli {

// Returns the floating (not complex) tensors of a result that require grad, depth first. Does not enter script objects.
std::vector<at::Tensor> differentiable_tensors(const c10::IValue& output);

// Returns the parameters that are trained.
std::vector<NamedTensor> trained_parameters(const torch::jit::Module& module);

// Returns the sum over the tensors of mean(o * o), or of sum(o). Nothing if there is no tensor.
std::optional<at::Tensor> mean_square_loss(const std::vector<at::Tensor>& outputs);
std::optional<at::Tensor> sum_loss(const std::vector<at::Tensor>& outputs);

// Returns d loss / d wanted, zeros for unused tensors. Throws what autograd throws.
std::vector<at::Tensor> gradients(const at::Tensor& loss, const std::vector<at::Tensor>& wanted);

// The gradients of a call.
struct CallGradients {
  std::vector<NamedTensor> by_name;  // "linear.weight", "inputs[0]"
  std::optional<std::string> error;  // what backward raised
  std::string why_none;              // if there are none, though backward did not raise
};

// Computes the gradients of the mean of squares of a call's outputs, by the module's parameters and the arguments.
CallGradients gradients_of_call(const c10::IValue& output, const std::vector<c10::IValue>& arguments,
                                const torch::jit::Module& module);

// Returns what mismatches call a gradient: "grad of linear.weight".
std::string gradient_path(const NamedTensor& gradient);

// Compares the gradients with LibTorch's. Requires: backward raised on neither side.
std::vector<Mismatch> compare_gradients(const CallGradients& got, const CallGradients& expected,
                                        const CompareOptions& options);

}  // namespace sconce::cli
