// Convolutions that clamp their results: one step instead of two over the same memory.
#pragma once

#include "kernels/packed/packed_convolution.h"
#include "plan/prepared/group.h"

#include <optional>

namespace sconce {

// Returns how the node clamps its first operand, by constant bounds; nothing if it does not.
std::optional<Bounds> clamping_bounds(const Node& node);
// Returns whether the node is a convolution of float32 on the CPU, all of whose numbers are constants.
bool is_known_convolution(const Node& node);

// Returns a kernel for a group of two nodes, a known convolution and one that clamps its result; null for other groups. The
// kernel runs while the weights are packed.
KernelPtr make_clamped_convolution(const NodeGroup& group);

}  // namespace sconce
