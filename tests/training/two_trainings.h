// Two trainings of one module: by sconce::TrainStep, and by a loop of LibTorch's own.
#pragma once

#include <sconce/module.h>
#include <sconce/train_step.h>

#include <ATen/core/Tensor.h>
#include <torch/csrc/jit/api/module.h>
#include <torch/optim/optimizer.h>

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

namespace sconce::testing {

// A module of TorchScript source with two linear layers, "a" and "b", of eight numbers.
// `prepare` adds attributes that `forward` reads.
torch::jit::Module two_layers(const std::string& forward, bool has_batch_norm = false,
                              const std::function<void(torch::jit::Module&)>& prepare = {});

inline const char* const kMlp = R"(
def forward(self, x):
    h = torch.tanh(torch.linear(x, self.a_weight, self.a_bias))
    return torch.linear(h, self.b_weight, self.b_bias) * self.scale
)";
inline const char* const kLoop = R"(
def forward(self, x):
    h = torch.zeros_like(x)
    for t in range(6):
        if t % 2 == 0:
            h = torch.tanh(torch.linear(x, self.a_weight, self.a_bias) + torch.linear(h, self.b_weight))
        else:
            h = h * torch.sigmoid(h + self.b_bias)
    return h
)";
inline const char* const kRows = R"(
def forward(self, x):
    best = torch.argmax(x, 1)
    h = torch.tanh(torch.linear(x, self.a_weight)[best % x.size(0)] + self.b_weight[best])
    return h + self.a_bias[best].unsqueeze(1)
)";
inline const char* const kNorm = R"(
def forward(self, x):
    h = torch.batch_norm(torch.linear(x, self.a_weight), self.b_bias + 1, self.a_bias, self.mean, self.var, True, 0.1, 1e-5, True)
    return torch.linear(torch.dropout(torch.relu(h), 0.2, True), self.b_weight)
)";

torch::jit::Module copy_of(const torch::jit::Module& module);
std::vector<at::Tensor> parameters_of(const torch::jit::Module& module);
std::vector<at::Tensor> state_of(const torch::jit::Module& module);  // parameters, then buffers

using MakeOptimizer = std::function<std::shared_ptr<torch::optim::Optimizer>(std::vector<at::Tensor>)>;
std::unique_ptr<torch::optim::Optimizer> adam(std::vector<at::Tensor> parameters);
std::unique_ptr<torch::optim::Optimizer> sgd(std::vector<at::Tensor> parameters);

// Trains one module by TrainStep and a copy by LibTorch.
class TwoTrainings {
 public:
  // `settings`: null for kernels that are compiled before the first run. With Options::exact, states must be equal to the
  // bit.
  TwoTrainings(
      const torch::jit::Module& module, const MakeOptimizer& make, const TrainOptions& options = {},
      TrainStep::Loss loss = [](const at::Tensor& y, const at::Tensor& target) { return at::mse_loss(y, target); },
      const std::optional<Options>& settings = {});

  // Takes a step with a random batch, and compares loss, parameters and buffers.
  void train(int64_t batch, uint64_t seed);
  // The same with this batch.
  void train_on(const at::Tensor& x, const at::Tensor& their_x, const at::Tensor& target, uint64_t seed);

  TrainStep& step() { return *step_; }
  torch::jit::Module& ours() { return ours_; }
  torch::jit::Module& theirs() { return theirs_; }
  torch::optim::Optimizer& our_optimizer() { return *our_optimizer_; }
  torch::optim::Optimizer& their_optimizer() { return *their_optimizer_; }

 private:
  bool are_close(const at::Tensor& found, const at::Tensor& expected) const;
  at::Tensor eager(const at::Tensor& x, const at::Tensor& target);
  at::Tensor eager_loss(const at::Tensor& x, const at::Tensor& target);

  const TrainOptions options_;
  const TrainStep::Loss loss_;
  const bool is_exact_;
  torch::jit::Module ours_;
  torch::jit::Module theirs_;
  std::shared_ptr<torch::optim::Optimizer> our_optimizer_;
  std::shared_ptr<torch::optim::Optimizer> their_optimizer_;
  std::unique_ptr<TrainStep> step_;
  size_t calls_ = 0;
};

}  // namespace sconce::testing
