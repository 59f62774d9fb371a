// OptimizerMirror: an optimizer of another language's torch.optim, as LibTorch's C++ optimizer of the same name.
#pragma once

#include <ATen/core/Tensor.h>
#include <torch/optim/optimizer.h>

#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <vector>

namespace sconce {

struct OptimizerClass;

// Shares the parameters and the tensors of their states with the other optimizer; the caller copies options and counts of
// steps. Parameters are numbered through all groups.
class OptimizerMirror {
 public:
  using Numbers = std::map<std::string, double>;  // options of a group: "lr", "beta1"; flags are 0 or 1
  using StateTensors = std::map<std::string, at::Tensor>;

  // Throws c10::Error if there is no such class: SGD, Adam, AdamW, RMSprop, Adagrad.
  OptimizerMirror(const std::string& name, const std::vector<std::vector<at::Tensor>>& groups);

  torch::optim::Optimizer& optimizer() { return *optimizer_; }

  // Throws c10::Error unless the class has exactly these options.
  void set_options(size_t group, const Numbers& options);
  // Gives a parameter a state with these tensors, after some steps. Throws c10::Error if the class has no such tensor.
  void set_state(size_t parameter, int64_t steps, const StateTensors& tensors);
  // Takes all states away.
  void clear_states() { optimizer_->state().clear(); }

  // Returns how many steps each parameter has made; -1 for one without a state, 0 for a class that does not count.
  std::vector<int64_t> steps() const;
  // Returns the tensors of a parameter's state; none before its first step.
  StateTensors state(size_t parameter) const;

 private:
  const OptimizerClass& class_;
  std::vector<at::Tensor> parameters_;
  std::unique_ptr<torch::optim::Optimizer> optimizer_;
};

}  // namespace sconce
