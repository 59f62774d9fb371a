#include "tools/sconce/bench/training_peer.h"

#include "tools/sconce/check/gradients.h"
#include "tools/sconce/values/autocast_region.h"

#include <sconce/train_step.h>

#include <c10/util/Exception.h>
#include <torch/csrc/jit/api/module.h>
#include <torch/optim/adam.h>
#include <torch/optim/sgd.h>

#include <algorithm>
#include <chrono>
#include <utility>
#include <vector>

namespace sconce::cli {
namespace {

// Small steps: the losses of many steps stay finite.
constexpr double kLearningRate = 1e-4;

std::unique_ptr<torch::optim::Optimizer> make_optimizer(Optimizer optimizer, std::vector<at::Tensor> parameters) {
  if (optimizer == Optimizer::kSgd) {
    return std::make_unique<torch::optim::SGD>(std::move(parameters), torch::optim::SGDOptions(kLearningRate).momentum(0.9));
  }
  return std::make_unique<torch::optim::Adam>(std::move(parameters), torch::optim::AdamOptions(kLearningRate));
}

std::vector<at::Tensor> parameters_to_train(const torch::jit::Module& module) {
  std::vector<at::Tensor> parameters;
  for (const at::Tensor& parameter : module.parameters()) {
    if (parameter.requires_grad()) {
      parameters.push_back(parameter);
    }
  }
  return parameters;
}

at::Tensor loss_of(const c10::IValue& output) {
  const auto loss = mean_square_loss(differentiable_tensors(output));
  TORCH_CHECK(loss, "no output of the model requires a gradient, so no step can train it; leave out --train");
  return *loss;
}

class TrainingSession : public peers::Peer::Session {
 public:
  TrainingSession(std::unique_ptr<Session> forward, torch::optim::Optimizer& optimizer)
      : forward_(std::move(forward)), optimizer_(optimizer) {}

  c10::IValue run(std::vector<c10::IValue> arguments) override {
    seconds_.clear();
    optimizer_.zero_grad();
    const Clock::time_point start = Clock::now();
    const at::Tensor loss = loss_of(forward_->run(std::move(arguments)));
    const Clock::time_point forward = Clock::now();
    loss.backward();
    const Clock::time_point backward = Clock::now();
    optimizer_.step();
    seconds_ = {seconds(forward - start), seconds(backward - forward), seconds(Clock::now() - backward)};
    return loss.detach();
  }

  std::vector<double> seconds_of_parts() const override { return seconds_; }

 private:
  using Clock = std::chrono::steady_clock;
  static double seconds(Clock::duration time) { return std::chrono::duration<double>(time).count(); }

  const std::unique_ptr<Session> forward_;
  torch::optim::Optimizer& optimizer_;
  std::vector<double> seconds_;
};

class TrainingPeer : public peers::Peer {
 public:
  TrainingPeer(std::unique_ptr<Peer> peer, Optimizer optimizer) : peer_(std::move(peer)), kind_(optimizer) {}

  std::optional<std::string> prepare(const torch::jit::Module& module, const std::string& method) override {
    if (auto reason = peer_->why_not_training()) {
      return reason;
    }
    std::vector<at::Tensor> parameters = parameters_to_train(module);
    if (parameters.empty()) {
      return "no parameter of the model requires a gradient";
    }
    optimizer_ = make_optimizer(kind_, std::move(parameters));
    return peer_->prepare(module, method);
  }

  std::unique_ptr<Session> session() override { return std::make_unique<TrainingSession>(peer_->session(), *optimizer_); }

 private:
  const std::unique_ptr<Peer> peer_;
  const Optimizer kind_;
  std::unique_ptr<torch::optim::Optimizer> optimizer_;
};

class StepSession : public peers::Peer::Session {
 public:
  explicit StepSession(TrainStep& step) : step_(step) {}
  c10::IValue run(std::vector<c10::IValue> arguments) override { return step_(arguments, {}); }

 private:
  TrainStep& step_;
};

class StepPeer : public peers::Peer {
 public:
  StepPeer(const Options& options, Optimizer optimizer) : options_(options), kind_(optimizer) {}

  std::optional<std::string> prepare(const torch::jit::Module& module, const std::string& method) override {
    if (method != "forward") {
      return "a train step calls the method forward";
    }
    std::vector<at::Tensor> parameters = parameters_to_train(module);
    if (parameters.empty()) {
      return "no parameter of the model requires a gradient";
    }
    optimizer_ = make_optimizer(kind_, std::move(parameters));
    TrainOptions options;
    if (const auto dtype = autocast_of_calls()) {
      options.autocast(*dtype);
    }
    step_ = std::make_unique<TrainStep>(
        accelerate(module, options_),
        [](const c10::IValue& output, const std::vector<c10::IValue>& /*targets*/) { return loss_of(output); }, *optimizer_,
        options);
    return std::nullopt;
  }

  // Steady steps are measured in another session than the first ones, which ask for the plan.
  std::unique_ptr<Session> session() override {
    step_->wait_for_compiles();
    return std::make_unique<StepSession>(*step_);
  }

  // A kind of arguments that has a plan takes two steps without it.
  std::optional<std::string> remark() const override {
    const TrainExplanation explanation = step_->explain();
    if (explanation.by_plan > 0 || explanation.reasons.empty()) {
      return std::nullopt;
    }
    const auto most = std::max_element(explanation.reasons.begin(), explanation.reasons.end(),
                                       [](const auto& a, const auto& b) { return a.second < b.second; });
    return "no step ran as one plan, forward and backward did: " + most->first;
  }

 private:
  const Options options_;
  const Optimizer kind_;
  std::unique_ptr<torch::optim::Optimizer> optimizer_;
  std::unique_ptr<TrainStep> step_;
};

}  // namespace

std::unique_ptr<peers::Peer> make_step_peer(const Options& options, Optimizer optimizer) {
  return std::make_unique<StepPeer>(options, optimizer);
}

std::optional<Optimizer> optimizer_named(const std::string& name) {
  return name == "sgd" ? std::optional(Optimizer::kSgd) : name == "adam" ? std::optional(Optimizer::kAdam) : std::nullopt;
}

std::unique_ptr<peers::Peer> make_training_peer(std::unique_ptr<peers::Peer> peer, Optimizer optimizer) {
  return std::make_unique<TrainingPeer>(std::move(peer), optimizer);
}

}  // namespace sconce::cli
