#include "tests/training/two_trainings.h"

#include <ATen/ATen.h>
#include <ATen/autocast_mode.h>
#include <gtest/gtest.h>
#include <torch/csrc/jit/frontend/resolver.h>
#include <torch/csrc/jit/frontend/sugared_value.h>
#include <torch/csrc/jit/runtime/graph_executor.h>
#include <torch/nn/utils/clip_grad.h>
#include <torch/optim/adam.h>
#include <torch/optim/lbfgs.h>
#include <torch/optim/sgd.h>

#include <utility>

namespace sconce::testing {

namespace {

// Names of libraries of operators, which a script in Python reaches by torch.ops.
struct LibraryResolver : torch::jit::Resolver {
  std::shared_ptr<torch::jit::SugaredValue> resolveValue(const std::string& name, torch::jit::GraphFunction& function,
                                                         const torch::jit::SourceRange& place) override {
    const bool is_library = name == "call_effects" || name == "profiler";
    return is_library ? std::make_shared<torch::jit::BuiltinModule>(name)
                      : torch::jit::nativeResolver()->resolveValue(name, function, place);
  }
  c10::TypePtr resolveType(const std::string& /*name*/, const torch::jit::SourceRange& /*place*/) override {
    return nullptr;
  }
};

}  // namespace

torch::jit::Module two_layers(const std::string& forward, bool has_batch_norm,
                              const std::function<void(torch::jit::Module&)>& prepare) {
  torch::jit::Module module("trainee");
  at::manual_seed(3);
  for (const std::string name : {"a", "b"}) {
    module.register_parameter(name + "_weight", at::randn({8, 8}) * 0.3, false);
    module.register_parameter(name + "_bias", at::zeros({8}).clone(), false);
  }
  module.register_attribute("scale", c10::FloatType::get(), 1.5);
  if (has_batch_norm) {
    module.register_buffer("mean", at::zeros({8}));
    module.register_buffer("var", at::ones({8}));
  }
  if (prepare) {
    prepare(module);
  }
  module.define(forward, std::make_shared<LibraryResolver>());
  for (const at::Tensor& parameter : module.parameters()) {
    parameter.set_requires_grad(true);
  }
  return module;
}

torch::jit::Module copy_of(const torch::jit::Module& module) {
  const at::NoGradGuard no_grad;
  torch::jit::Module copy = module.deepcopy();
  for (const at::Tensor& parameter : copy.parameters()) {
    parameter.set_requires_grad(true);
  }
  return copy;
}

std::vector<at::Tensor> parameters_of(const torch::jit::Module& module) {
  std::vector<at::Tensor> parameters;
  for (const at::Tensor& parameter : module.parameters()) {
    parameters.push_back(parameter);
  }
  return parameters;
}

std::vector<at::Tensor> state_of(const torch::jit::Module& module) {
  std::vector<at::Tensor> state = parameters_of(module);
  for (const at::Tensor& buffer : module.buffers()) {
    state.push_back(buffer);
  }
  return state;
}

std::unique_ptr<torch::optim::Optimizer> adam(std::vector<at::Tensor> parameters) {
  return std::make_unique<torch::optim::Adam>(std::move(parameters), torch::optim::AdamOptions(0.01));
}
std::unique_ptr<torch::optim::Optimizer> sgd(std::vector<at::Tensor> parameters) {
  return std::make_unique<torch::optim::SGD>(std::move(parameters), torch::optim::SGDOptions(0.1).momentum(0.9));
}

TwoTrainings::TwoTrainings(const torch::jit::Module& module, const MakeOptimizer& make, const TrainOptions& options,
                           TrainStep::Loss loss, const std::optional<Options>& settings)
    : options_(options),
      loss_(std::move(loss)),
      is_exact_(settings && settings->exact()),
      ours_(module),
      theirs_(copy_of(module)),
      our_optimizer_(make(parameters_of(ours_))),
      their_optimizer_(make(parameters_of(theirs_))),
      step_(std::make_unique<TrainStep>(accelerate(ours_, settings ? *settings : Options().compile(CompileMode::kBlocking)),
                                        loss_, *our_optimizer_, options_)) {}

void TwoTrainings::train(int64_t batch, uint64_t seed) {
  at::manual_seed(seed);
  const at::Tensor x = at::randn({batch, 8});
  train_on(x, x, at::randn({batch, 8}).softmax(1), seed);
}

void TwoTrainings::train_on(const at::Tensor& x, const at::Tensor& their_x, const at::Tensor& target, uint64_t seed) {
  at::manual_seed(seed);
  const at::Tensor found = (*step_)({x}, {target});
  at::manual_seed(seed);
  const at::Tensor expected = eager(their_x, target);
  EXPECT_TRUE(are_close(found, expected)) << "loss of step " << seed << ": " << found << expected;
  EXPECT_FALSE(found.requires_grad());
  const auto states = std::pair(state_of(ours_), state_of(theirs_));
  for (size_t i = 0; i < states.first.size(); ++i) {
    EXPECT_TRUE(are_close(states.first[i], states.second[i])) << "tensor " << i << " after step " << seed;
  }
}

bool TwoTrainings::are_close(const at::Tensor& found, const at::Tensor& expected) const {
  const double tolerance = options_.autocast() ? 0.02 : 1e-4;
  return is_exact_ ? at::equal(found, expected) : at::allclose(found, expected, tolerance, tolerance);
}

at::Tensor TwoTrainings::eager_loss(const at::Tensor& x, const at::Tensor& target) {
  const bool casts = options_.autocast().has_value();
  at::autocast::set_autocast_enabled(at::kCPU, casts);
  if (casts) {
    at::autocast::set_autocast_dtype(at::kCPU, *options_.autocast());
  }
  torch::jit::setGraphExecutorOptimize(false);  // no gradients but autograd's
  at::Tensor loss = loss_(theirs_.get_method(options_.method())({x}).toTensor(), target);
  torch::jit::setGraphExecutorOptimize(true);
  at::autocast::clear_cache();
  at::autocast::set_autocast_enabled(at::kCPU, false);
  return loss;
}

at::Tensor TwoTrainings::eager(const at::Tensor& x, const at::Tensor& target) {
  if (dynamic_cast<const torch::optim::LBFGS*>(their_optimizer_.get()) != nullptr) {
    const auto evaluate = [&] {
      their_optimizer_->zero_grad();
      at::Tensor loss = eager_loss(x, target);
      loss.backward();
      return loss;
    };
    return their_optimizer_->step(evaluate).detach();
  }
  if (calls_ == 0) {
    their_optimizer_->zero_grad();
  }
  const at::Tensor loss = eager_loss(x, target);
  (loss / static_cast<double>(options_.accumulate())).backward();
  if (++calls_ == options_.accumulate()) {
    calls_ = 0;
    if (options_.clip_norm()) {
      torch::nn::utils::clip_grad_norm_(parameters_of(theirs_), *options_.clip_norm());
    }
    if (options_.clip_value()) {
      torch::nn::utils::clip_grad_value_(parameters_of(theirs_), *options_.clip_value());
    }
    their_optimizer_->step();
  }
  return loss.detach();
}

}  // namespace sconce::testing
