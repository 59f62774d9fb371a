// The only place that names c10d's back end for CPUs.
#pragma once

#include <torch/csrc/distributed/c10d/ProcessGroup.hpp>

#include <chrono>
#include <string>

namespace sconce {

// Makes ranks a group. All of them call it with the same store. Returns when they are connected. The store keeps no other
// keys that begin with `name`. Ignores SIGPIPE from then on, if the program has not set a handler: gloo's writes to a rank
// that has ended would end the program without a word.
c10::intrusive_ptr<c10d::ProcessGroup> make_gloo_group(const c10::intrusive_ptr<c10d::Store>& store, const std::string& name,
                                                       int rank, int world, std::chrono::milliseconds timeout);

}  // namespace sconce
