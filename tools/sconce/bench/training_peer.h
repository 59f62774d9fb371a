// Training steps under the interface of calls.
#pragma once

#include "tools/peers/peer.h"

#include <sconce/options.h>

#include <memory>
#include <optional>
#include <string>

namespace sconce::cli {

enum class Optimizer : uint8_t { kSgd, kAdam };

// Returns the optimizer of that name, if there is one.
std::optional<Optimizer> optimizer_named(const std::string& name);

// Makes a peer whose calls are training steps of another: forward, the loss (the mean of squares of every output that
// requires a gradient, added up), backward, and a step of LibTorch's optimizer on the module's parameters. A call returns
// the loss before the step. It throws c10::Error if no output or no parameter requires a gradient.
std::unique_ptr<peers::Peer> make_training_peer(std::unique_ptr<peers::Peer> peer, Optimizer optimizer);

// Makes a peer whose calls are the same steps as one TrainStep: of the method `forward` alone.
std::unique_ptr<peers::Peer> make_step_peer(const Options& options, Optimizer optimizer);

}  // namespace sconce::cli
