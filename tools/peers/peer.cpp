#include "tools/peers/peer.h"

#include "tools/peers/script_peer.h"
#include "tools/peers/static_peer.h"

namespace sconce::peers {

const std::vector<PeerInfo>& peer_list() {
  static const std::vector<PeerInfo> peers = {
      {"jit", "torch::jit, profiling executor"},
      {"jit-legacy", "torch::jit, executor with plans per argument spec"},
      {"jit-frozen", "torch::jit after freeze and optimize_for_inference"},
      {"static", "Static Runtime"},
      {"eager", "operator after operator, optimization off"},
  };
  return peers;
}

std::unique_ptr<Peer> make_peer(const std::string& name) {
  if (name == "jit") {
    return std::make_unique<ScriptPeer>(ExecutorSettings{});
  }
  if (name == "jit-legacy") {
    return std::make_unique<ScriptPeer>(ExecutorSettings{.executor_mode = false, .profiling_mode = false});
  }
  if (name == "jit-frozen") {
    return std::make_unique<FrozenPeer>();
  }
  if (name == "static") {
    return std::make_unique<StaticPeer>();
  }
  if (name == "eager") {
    return std::make_unique<EagerPeer>();
  }
  return nullptr;
}

}  // namespace sconce::peers
