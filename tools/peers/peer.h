// Peers: LibTorch's executors under one interface, for comparisons with sconce. Only this folder may call them.
#pragma once

#include <ATen/core/ivalue.h>

#include <array>
#include <memory>
#include <optional>
#include <string>
#include <vector>

namespace torch::jit {
struct Module;
}

namespace sconce::peers {

// A model run by one executor.
//
//   auto peer = make_peer("jit");
//   if (const auto reason = peer->prepare(module, "forward")) { … n/a: *reason … }
//   auto session = peer->session();          // on each thread that calls
//   c10::IValue y = session->run({x});
class Peer {
 public:
  virtual ~Peer() = default;

  // Prepares the module's method. Must be called once, first. (Executors that compile at the first call do so then.) Returns
  // why this executor cannot run the model, in one line; nothing if it can. `jit`, `jit-legacy` and `eager` run the module
  // itself, so changes of its state are visible in it; the others run a copy.
  virtual std::optional<std::string> prepare(const torch::jit::Module& module, const std::string& method) = 0;

  // Returns why no gradient flows through the calls of this executor, in one line; nothing if gradients do.
  virtual std::optional<std::string> why_not_training() const { return std::nullopt; }

  // Permits calls on this thread. LibTorch chooses its executor by settings of the thread and the process, which a session
  // sets at its beginning and restores at its end. Sessions of peers with different settings of the process (`jit-legacy`
  // and all others) must not overlap on any thread; the second one throws.
  class Session {
   public:
    virtual ~Session() = default;
    // Throws what the model throws.
    virtual c10::IValue run(std::vector<c10::IValue> arguments) = 0;
    // Returns the host's seconds in the parts of the last call, in the order of `parts_of_steps`; none if it has no parts.
    virtual std::vector<double> seconds_of_parts() const { return {}; }
  };
  virtual std::unique_ptr<Session> session() = 0;

  // Returns what to know of the times of the calls so far, in one line; nothing if they are what the executor's name says.
  virtual std::optional<std::string> remark() const { return std::nullopt; }
};

// The parts of a training step that calls forward, backward and the optimizer one after the other.
inline constexpr std::array<const char*, 3> parts_of_steps = {"forward", "backward", "optimizer"};

struct PeerInfo {
  const char* name;
  const char* help;
};

// Returns the names of all peers, in the order of tables.
//   jit         the profiling executor with its defaults
//   jit-legacy  the executor with plans per argument spec
//   jit-frozen  freeze and optimize_for_inference, then as jit; modules in eval mode only
//   static      Static Runtime; the forward method of modules in eval mode only
//   eager       operator after operator: the interpreter with optimization off. Autocast blocks are lowered first, because
//               LibTorch ignores them otherwise.
const std::vector<PeerInfo>& peer_list();

// Makes a peer. Null if there is none of that name.
std::unique_ptr<Peer> make_peer(const std::string& name);

}  // namespace sconce::peers
