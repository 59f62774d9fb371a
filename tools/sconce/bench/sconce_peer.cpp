#include "tools/sconce/bench/sconce_peer.h"

#include "base/exception_message.h"

#include <torch/csrc/jit/api/module.h>

namespace sconce::cli {
namespace {

class SconceSession : public peers::Peer::Session {
 public:
  SconceSession(const Module& module, const std::string& method) : module_(module), method_(method) {}

  c10::IValue run(std::vector<c10::IValue> arguments) override {
    return method_ == "forward" ? module_.forward(std::move(arguments)) : module_.run_method(method_, std::move(arguments));
  }

 private:
  const Module& module_;
  const std::string& method_;
};

}  // namespace

std::optional<std::string> SconcePeer::prepare(const torch::jit::Module& module, const std::string& method) {
  method_ = method;
  module_ = accelerate(module, options_);
  try {
    module_->method(method);
  } catch (const c10::Error& failure) {
    return one_line_message(failure);
  }
  return std::nullopt;
}

// Steady calls are measured in another session than the first calls, which ask for specialized plans.
std::unique_ptr<peers::Peer::Session> SconcePeer::session() {
  module_->method(method_).wait_for_compiles();
  return std::make_unique<SconceSession>(*module_, method_);
}

}  // namespace sconce::cli
