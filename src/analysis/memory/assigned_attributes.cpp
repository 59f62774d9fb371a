#include "analysis/memory/assigned_attributes.h"

#include "analysis/effects.h"

#include <ATen/core/jit_type.h>

namespace sconce {
namespace {

std::pair<std::string, std::string> class_and_name(const Node& access) {
  return {access.input(0)->type()->annotation_str(), access.attribute_as<std::string>(attr::kName)};
}

}  // namespace

AssignedAttributes::AssignedAttributes(const Graph& graph) {
  for_each_node(graph.body(), [&](Node* node) {
    if (node->kind() == prim::SetAttr) {
      assigned_.insert(class_and_name(*node));
    }
    any_may_be_ = any_may_be_ || effects_of(*node).unknown;
  });
}

bool AssignedAttributes::contains(const Node& access) const { return any_may_be_ || names(access); }

bool AssignedAttributes::names(const Node& access) const { return assigned_.contains(class_and_name(access)); }

}  // namespace sconce
