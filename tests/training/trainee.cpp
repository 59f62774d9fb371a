#include "tests/training/trainee.h"

#include "tests/support/graphs.h"
#include "tools/sconce/check/gradients.h"
#include "tools/sconce/values/deep_copy.h"
#include "tools/sconce/values/fit_arguments.h"
#include "tools/sconce/values/value_walk.h"

#include "load/load_module.h"

#include <ATen/ATen.h>
#include <torch/optim/adam.h>
#include <torch/optim/sgd.h>

#include <limits>

namespace sconce::testing {

Trainee::Trainee(const std::string& model, Executor executor, cli::Optimizer optimizer)
    : cases_(std::get<cli::ModelCases>(cli::read_cases(models_dir() + "/" + model + ".cases.pt"))),
      module_(load_script_module(models_dir() + "/" + model + ".pt", std::nullopt)) {
  if (executor == Executor::kSconce) {
    sconce_ = accelerate(module_, Options().compile(CompileMode::kBlocking));
  } else {
    eager_ = peers::make_peer("eager");
    if (const auto reason = eager_->prepare(module_, cases_.method)) {
      throw std::runtime_error(model + ": " + *reason);
    }
  }
  arguments_ = cli::fit_arguments(module_, cases_.method, cases_.inputs.at(0));
  for (const at::Tensor& parameter : module_.parameters()) {
    if (parameter.requires_grad()) {
      parameters_.push_back(parameter);
    }
  }
  if (optimizer == cli::Optimizer::kSgd) {
    optimizer_ = std::make_unique<torch::optim::SGD>(parameters_, torch::optim::SGDOptions(1e-2).momentum(0.9));
  } else {
    optimizer_ = std::make_unique<torch::optim::Adam>(parameters_, torch::optim::AdamOptions(1e-3));
  }
}

void Trainee::copy_state(const Trainee& other) {
  const at::NoGradGuard no_grad;
  const std::vector<at::Tensor> ours = state();
  const std::vector<at::Tensor> theirs = other.state();
  for (size_t i = 0; i < ours.size(); ++i) {
    ours[i].copy_(theirs[i]);
  }
}

void Trainee::perturb_arguments() {
  const at::NoGradGuard no_grad;
  for (const c10::IValue& argument : arguments_) {
    for (const auto& [path, tensor] : cli::tensors_in(argument, "", cli::Objects::kSkip)) {
      if (tensor.is_floating_point()) {
        tensor.copy_(at::nextafter(tensor, at::full_like(tensor, std::numeric_limits<double>::infinity())));
      }
    }
  }
}

void Trainee::perturb_parameters() {
  const at::NoGradGuard no_grad;
  for (const at::Tensor& parameter : parameters_) {
    constexpr double kInfinity = std::numeric_limits<double>::infinity();
    const at::Tensor direction =
        at::full_like(parameter, kInfinity).masked_fill_(at::rand_like(parameter) < 0.5, -kInfinity);
    parameter.copy_(at::nextafter(parameter, direction));
  }
}

c10::IValue Trainee::call(std::vector<c10::IValue> arguments) const {
  return sconce_ ? sconce_->run_method(cases_.method, std::move(arguments)) : eager_->session()->run(std::move(arguments));
}

double Trainee::backward(uint64_t step) {
  optimizer_->zero_grad();
  at::manual_seed(cases_.seed + step);
  const auto loss = cli::mean_square_loss(cli::differentiable_tensors(call(cli::deep_copy(arguments_))));
  TORCH_CHECK(loss, "no output requires a gradient");
  loss->backward();
  return loss->item<double>();
}

double Trainee::train(uint64_t step) {
  const double loss = backward(step);
  optimizer_->step();
  return loss;
}

std::vector<at::Tensor> Trainee::gradients() const {
  std::vector<at::Tensor> gradients;
  for (const at::Tensor& parameter : parameters_) {
    gradients.push_back(parameter.grad());
  }
  return gradients;
}

std::vector<at::Tensor> Trainee::state() const {
  std::vector<at::Tensor> state;
  for (const at::Tensor& parameter : module_.parameters()) {
    state.push_back(parameter);
  }
  for (const at::Tensor& buffer : module_.buffers()) {
    state.push_back(buffer);
  }
  return state;
}

}  // namespace sconce::testing
