#include "tools/peers/static_peer.h"

#include "base/exception_message.h"
#include "tools/peers/executor_settings.h"
#include "tools/peers/script_peer.h"

#include <torch/csrc/jit/runtime/static/impl.h>

namespace sconce::peers {

class StaticPeer::StaticSession : public Peer::Session {
 public:
  explicit StaticSession(StaticPeer& peer) : scope_(ExecutorSettings{}), peer_(peer) {
    const std::lock_guard<std::mutex> lock(peer_.mutex_);
    if (peer_.idle_runtimes_.empty()) {
      runtime_ = std::make_unique<torch::jit::StaticRuntime>(*peer_.static_module_);
    } else {
      runtime_ = std::move(peer_.idle_runtimes_.back());
      peer_.idle_runtimes_.pop_back();
    }
  }
  ~StaticSession() override {
    const std::lock_guard<std::mutex> lock(peer_.mutex_);
    peer_.idle_runtimes_.push_back(std::move(runtime_));
  }

  c10::IValue run(std::vector<c10::IValue> arguments) override { return (*runtime_)(std::move(arguments), {}); }

 private:
  const ExecutorScope scope_;
  StaticPeer& peer_;
  std::unique_ptr<torch::jit::StaticRuntime> runtime_;
};

StaticPeer::StaticPeer() = default;
StaticPeer::~StaticPeer() = default;

std::optional<std::string> StaticPeer::prepare(const torch::jit::Module& module, const std::string& method) {
  if (method != "forward") {
    return "Static Runtime runs forward only";
  }
  if (is_in_training_mode(module)) {
    return "Static Runtime freezes, which needs eval mode; the model was saved in training mode";
  }
  if (!module.find_method(method)) {
    return "the model has no method 'forward'";
  }
  if (!module.type()->getForwardPreHooks().empty() || !module.type()->getForwardHooks().empty()) {
    return "Static Runtime does not run the module's hooks";
  }
  const ExecutorScope scope({});
  try {
    static_module_ = std::make_unique<torch::jit::StaticModule>(module.copy());
  } catch (const std::exception& failure) {
    return "Static Runtime refuses the model: " + one_line_message(failure);
  }
  return std::nullopt;
}

std::unique_ptr<Peer::Session> StaticPeer::session() { return std::make_unique<StaticSession>(*this); }

}  // namespace sconce::peers
