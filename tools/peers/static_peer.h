// Static Runtime.
#pragma once

#include "tools/peers/peer.h"

#include <mutex>

namespace torch::jit {
class StaticModule;
class StaticRuntime;
}  // namespace torch::jit

namespace sconce::peers {

// A runtime holds the state of one run: each session takes one from the pool.
class StaticPeer : public Peer {
 public:
  StaticPeer();
  ~StaticPeer() override;
  std::optional<std::string> prepare(const torch::jit::Module& module, const std::string& method) override;
  std::optional<std::string> why_not_training() const override {
    return "Static Runtime does not train: it runs frozen models";
  }
  std::unique_ptr<Session> session() override;

 private:
  class StaticSession;
  std::unique_ptr<torch::jit::StaticModule> static_module_;
  std::mutex mutex_;
  std::vector<std::unique_ptr<torch::jit::StaticRuntime>> idle_runtimes_;
};

}  // namespace sconce::peers
