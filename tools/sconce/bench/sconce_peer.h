// sconce under the interface of its peers.
#pragma once

#include "tools/peers/peer.h"

#include <sconce/module.h>

namespace sconce::cli {

class SconcePeer : public peers::Peer {
 public:
  explicit SconcePeer(const Options& options) : options_(options) {}
  std::optional<std::string> prepare(const torch::jit::Module& module, const std::string& method) override;
  std::unique_ptr<Session> session() override;
  // Requires: `prepare` returned no reason.
  const GraphExecutor& executor() const { return module_->method(method_); }

 private:
  const Options options_;
  std::optional<Module> module_;
  std::string method_;
};

}  // namespace sconce::cli
