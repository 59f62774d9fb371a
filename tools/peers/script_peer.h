// The peers that run a module through torch::jit's graph executors.
#pragma once

#include "tools/peers/executor_settings.h"
#include "tools/peers/peer.h"

#include <torch/csrc/jit/api/module.h>

namespace sconce::peers {

// Runs the module itself. A `forward` with hooks on the module runs as Module::operator() runs it.
class ScriptPeer : public Peer {
 public:
  explicit ScriptPeer(const ExecutorSettings& settings) : settings_(settings) {}
  std::optional<std::string> prepare(const torch::jit::Module& module, const std::string& method) override;
  std::unique_ptr<Session> session() override;

 private:
  const ExecutorSettings settings_;
  torch::jit::Module module_;
  std::string method_;
};

// `eager`.
class EagerPeer : public ScriptPeer {
 public:
  EagerPeer() : ScriptPeer({.optimize = false}) {}
  std::optional<std::string> prepare(const torch::jit::Module& module, const std::string& method) override;
};

// `jit-frozen`.
class FrozenPeer : public ScriptPeer {
 public:
  FrozenPeer() : ScriptPeer({}) {}
  std::optional<std::string> why_not_training() const override {
    return "a frozen model does not train: its parameters are constants";
  }
  std::optional<std::string> prepare(const torch::jit::Module& module, const std::string& method) override;
};

// Returns whether the module has a `training` attribute that is true.
bool is_in_training_mode(const torch::jit::Module& module);

}  // namespace sconce::peers
