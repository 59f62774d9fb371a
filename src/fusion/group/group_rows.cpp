#include "fusion/group/group_rows.h"

#include "fusion/program/reductions.h"
#include "kernels/clamped_convolution.h"

#include <algorithm>

namespace sconce {
namespace {

bool reductions(const Node& node) {
  if (node.schema() == nullptr || !may_reduce(node.op())) {
    return false;
  }
  const TensorFacts* facts = node.input(0)->facts();
  const size_t rank = facts != nullptr && facts->sizes ? facts->sizes->size() : DimSet().size();
  return reduction_of(node, static_cast<int64_t>(rank)).has_value();
}

}  // namespace

bool may_take_rows(const NodeGroup& group) {
  return group.writes.empty() && !is_known_convolution(*group.nodes.front()) &&
         std::none_of(group.nodes.begin(), group.nodes.end(), [](const Node* node) { return reductions(*node); });
}

}  // namespace sconce
