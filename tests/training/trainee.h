// A model that sconce, or eager LibTorch, trains.
#pragma once

#include "tools/peers/peer.h"
#include "tools/sconce/bench/training_peer.h"
#include "tools/sconce/values/cases.h"

#include <sconce/module.h>

#include <torch/csrc/jit/api/module.h>
#include <torch/optim/optimizer.h>

#include <memory>
#include <optional>
#include <string>
#include <vector>

namespace sconce::testing {

// A training step calls the first case of the model's CASES file, whose loss is the mean square of the outputs.
class Trainee {
 public:
  enum class Executor : uint8_t { kEager, kSconce };
  // `model`: a file of SCONCE_MODELS_DIR, without ".pt".
  Trainee(const std::string& model, Executor executor, cli::Optimizer optimizer);

  // Sets all parameters and buffers to those of the other.
  void copy_state(const Trainee& other);
  // Moves every floating-point argument by one unit in the last place.
  void perturb_arguments();
  // Moves every parameter by one unit in the last place, up or down by chance.
  void perturb_parameters();

  // Computes the gradients of a step, and returns the loss. `step` seeds LibTorch's generator.
  double backward(uint64_t step);
  // The same, then changes the parameters.
  double train(uint64_t step);

  std::vector<at::Tensor> gradients() const;  // of the last step, undefined where there is none
  std::vector<at::Tensor> state() const;      // parameters, then buffers
  const Module* sconce() const { return sconce_ ? &*sconce_ : nullptr; }

 private:
  c10::IValue call(std::vector<c10::IValue> arguments) const;

  cli::ModelCases cases_;
  torch::jit::Module module_;
  std::optional<Module> sconce_;
  std::unique_ptr<peers::Peer> eager_;
  std::vector<at::Tensor> parameters_;
  std::vector<c10::IValue> arguments_;
  std::unique_ptr<torch::optim::Optimizer> optimizer_;
};

}  // namespace sconce::testing
