#include "tools/sconce/bench/training_peer.h"

#include "tools/sconce/check/gradients.h"

#include <c10/util/Exception.h>
#include <torch/csrc/jit/api/module.h>
#include <torch/optim/adam.h>
#include <torch/optim/sgd.h>

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

class TrainingSession : public peers::Peer::Session {
 public:
  TrainingSession(std::unique_ptr<Session> forward, torch::optim::Optimizer& optimizer)
      : forward_(std::move(forward)), optimizer_(optimizer) {}

  c10::IValue run(std::vector<c10::IValue> arguments) override {
    optimizer_.zero_grad();
    const auto loss = mean_square_loss(differentiable_tensors(forward_->run(std::move(arguments))));
    TORCH_CHECK(loss, "no output of the model requires a gradient, so no step can train it; leave out --train");
    loss->backward();
    optimizer_.step();
    return loss->detach();
  }

 private:
  const std::unique_ptr<Session> forward_;
  torch::optim::Optimizer& optimizer_;
};

class TrainingPeer : public peers::Peer {
 public:
  TrainingPeer(std::unique_ptr<Peer> peer, Optimizer optimizer) : peer_(std::move(peer)), kind_(optimizer) {}

  std::optional<std::string> prepare(const torch::jit::Module& module, const std::string& method) override {
    if (auto reason = peer_->why_not_training()) {
      return reason;
    }
    std::vector<at::Tensor> parameters;
    for (const at::Tensor& parameter : module.parameters()) {
      if (parameter.requires_grad()) {
        parameters.push_back(parameter);
      }
    }
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

}  // namespace

std::optional<Optimizer> optimizer_named(const std::string& name) {
  return name == "sgd" ? std::optional(Optimizer::kSgd) : name == "adam" ? std::optional(Optimizer::kAdam) : std::nullopt;
}

std::unique_ptr<peers::Peer> make_training_peer(std::unique_ptr<peers::Peer> peer, Optimizer optimizer) {
  return std::make_unique<TrainingPeer>(std::move(peer), optimizer);
}

}  // namespace sconce::cli
