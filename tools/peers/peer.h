// LibTorch's own executors behind one interface: what sconce is compared with. Nothing else in sconce may call them.
#pragma once

#include <ATen/core/ivalue.h>

#include <memory>
#include <optional>
#include <string>
#include <vector>

namespace torch::jit {
struct Module;
}

namespace sconce::peers {

// A model as one executor runs it.
//
//   auto peer = make_peer("jit");
//   if (const auto reason = peer->prepare(module, "forward")) { … n/a: *reason … }
//   auto session = peer->session();          // on each thread that calls
//   c10::IValue y = session->run({x});
class Peer {
 public:
  virtual ~Peer() = default;

  // Makes the module's method ready to run; what compiles at the first call compiles then. Must come first, once.
  // Returns why this executor cannot run the model, in one line; nothing when it can. `jit`, `jit-legacy` and `eager` run
  // the module itself, so that changes of its state are seen in it; the others run a copy.
  virtual std::optional<std::string> prepare(const torch::jit::Module& module, const std::string& method) = 0;

  // The right to run on this thread. LibTorch chooses its executor by settings of the thread and of the process: they are
  // set when a session begins and put back when it ends. Sessions of peers with different settings of the process
  // (`jit-legacy` and the rest) must not overlap, on any thread; beginning one ends in an error then.
  class Session {
   public:
    virtual ~Session() = default;
    // Throws what the model throws.
    virtual c10::IValue run(std::vector<c10::IValue> arguments) = 0;
  };
  virtual std::unique_ptr<Session> session() = 0;
};

struct PeerInfo {
  const char* name;
  const char* help;
};

// In the order in which tables show them.
//   jit         the profiling executor with its defaults
//   jit-legacy  the executor with plans per argument spec
//   jit-frozen  freeze and optimize_for_inference, then as jit; modules in eval mode only
//   static      Static Runtime; the forward method of modules in eval mode only
//   eager       op after op: the interpreter with optimization off. Autocast blocks are lowered first, for without that
//               LibTorch ignores them.
const std::vector<PeerInfo>& peer_list();

// Null when there is no peer of that name.
std::unique_ptr<Peer> make_peer(const std::string& name);

}  // namespace sconce::peers
