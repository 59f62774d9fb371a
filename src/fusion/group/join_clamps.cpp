#include "fusion/group/join_clamps.h"

#include "ir/kernel_node.h"
#include "kernels/clamped_convolution.h"

#include <vector>

namespace sconce {
namespace {

// Returns the convolution that the kernel node can take; null if there is none.
Node* convolution_before(const Node& kernel) {
  const Block& block = *kernel.block(0);
  const Node& clamp = **block.nodes().begin();
  if (clamp.next() != nullptr || !clamping_bounds(clamp) || kernel.outputs().size() != 1) {
    return nullptr;
  }
  Node* before = kernel.previous();
  while (before != nullptr && before->opcode() == Opcode::kConstant) {
    before = before->previous();
  }
  const bool is_joined = before != nullptr && is_known_convolution(*before) && clamp.input(0) == before->output() &&
                         before->output()->uses().size() == 1;
  return is_joined ? before : nullptr;
}

}  // namespace

bool join_clamps(Graph& graph) {
  std::vector<Node*> kernels;
  for_each_node(graph.body(), [&](Node* node) {
    if (node->opcode() == Opcode::kKernel && convolution_before(*node) != nullptr) {
      kernels.push_back(node);
    }
  });
  for (Node* kernel : kernels) {
    move_into_kernel(*convolution_before(*kernel), *kernel);
  }
  return !kernels.empty();
}

}  // namespace sconce
