// A module on the CPU, run by LibTorch, and the same on the simulated GPU, run by sconce: outputs and gradients side by
// side.
#pragma once

#include "tests/simulated_gpu/simulated_gpu.h"

#include <sconce/sconce.h>

#include <ATen/core/ivalue.h>
#include <torch/csrc/jit/api/module.h>

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

namespace sconce::testing {

// Products, kernels and a sum, of the attributes w [8, n], b [8] and v [8, 8].
inline constexpr const char* kNetwork = R"(
def forward(self, x):
    h = torch.relu(torch.linear(x, self.w, self.b))
    for i in range(3):
        h = torch.tanh(torch.mm(h, self.v) * 0.5 + h)
    return h, h.sum(dim=1)
)";

using Attributes = std::vector<std::pair<std::string, c10::IValue>>;

// Counts how the captured ranges of a module were run.
struct RangeCounts {
  size_t ranges = 0;
  uint64_t captures = 0;
  uint64_t replays = 0;
  std::string reasons;  // of runs that were not replayed, a line each
};
RangeCounts counts_of(const std::vector<RecordedExplanation>& ranges);
// Adds up the ranges of all plans: of the plans themselves, and of the forward and the backward plans of their
// differentiable subgraphs.
struct TrainingCounts {
  RangeCounts own;
  RangeCounts forward;
  RangeCounts backward;
};
TrainingCounts counts_of(const Explanation& explanation);

// Returns a copy on the GPU, whose parameters require gradients.
torch::jit::Module copy_on_gpu(const torch::jit::Module& module);
std::vector<at::Tensor> parameters_of(const torch::jit::Module& module);

class ModuleOnBoth {
 public:
  // Tensors among the attributes that require gradients are parameters, others are buffers. Both modules train.
  ModuleOnBoth(SimulatedGpu& simulated, const std::string& methods, const Attributes& attributes, Options options = {});

  // The results of a call and of its backward.
  struct Call {
    std::vector<at::Tensor> cpu;  // outputs
    std::vector<at::Tensor> gpu;
    std::vector<at::Tensor> cpu_arguments;
    std::vector<at::Tensor> gpu_arguments;
  };
  // Calls both modules. Those of the arguments require gradients whose copies do. Compares outputs.
  Call forward(const std::vector<c10::IValue>& arguments, const std::string& where = {});
  // Runs backward of the weighted sum of outputs, with the same weights for both.
  void backward(const Call& call, bool retain_graph = false) const;
  // Compares gradients of parameters and of the call's arguments, and buffers.
  void expect_equal_gradients(const Call& call, const std::string& where) const;
  void zero_gradients();
  // Calls both, with backward, compares, and sets gradients to undefined ones.
  void train(const std::vector<c10::IValue>& arguments, const std::string& where = {});

  TrainingCounts counts() const { return counts_of(gpu.method("forward").explain()); }

  SimulatedGpu& simulated;
  torch::jit::Module cpu;
  Module gpu;
};

// Returns the tensors in a value, also those in tuples and lists.
std::vector<at::Tensor> tensors_in(const c10::IValue& value);
// Returns the weighted sum of the outputs that require gradients. The weights depend on the outputs' positions alone.
at::Tensor weighted_sum(const std::vector<at::Tensor>& outputs);

}  // namespace sconce::testing
