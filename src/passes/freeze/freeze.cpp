#include "passes/freeze/freeze.h"

#include "base/assert.h"

#include <algorithm>

namespace sconce {

bool freeze(Graph& method, const ModuleConstants& constants) {
  const auto inlined = constants.inline_interface_calls(method);
  SCONCE_ASSERT(inlined, "refused, although the module's constants were found: ", to_string(inlined.refusal()));
  bool changed = *inlined;
  const ObjectMap objects = constants.objects_in(method);
  std::vector<Node*> reads_of_submodules;
  for_each_node(method.body(), [&](Node* node) {
    const auto slot = node->kind() == prim::GetAttr ? attribute_slot(*node, objects) : std::nullopt;
    if (!slot) {
      return;
    }
    const ModuleAttribute& attribute = constants.attribute(*slot);
    if (attribute.constant) {
      Value* constant = method.insert_constant(*attribute.constant, node, attribute.type);
      constant->set_name(node->output()->name())->node()->set_location(node->location());
      node->output()->replace_all_uses_with(constant);
      node->erase();
      changed = true;
    } else if (objects.count(node->output()) != 0) {
      reads_of_submodules.push_back(node);
    }
  });
  // Innermost first.
  std::reverse(reads_of_submodules.begin(), reads_of_submodules.end());
  for (Node* read : reads_of_submodules) {
    if (!read->output()->has_uses()) {
      read->erase();
      changed = true;
    }
  }
  return changed;
}

std::vector<RefusalExplanation> attributes_not_frozen(const Graph& method, const ModuleConstants& constants) {
  const ObjectMap objects = constants.objects_in(method);
  std::vector<RefusalExplanation> refusals;
  std::vector<std::vector<std::string>> names;  // names of the attributes with each reason
  for_each_node(method.body(), [&](Node* node) {
    const auto slot = node->kind() == prim::GetAttr ? attribute_slot(*node, objects) : std::nullopt;
    if (!slot || !constants.attribute(*slot).refusal) {
      return;
    }
    const Refusal& refusal = *constants.attribute(*slot).refusal;
    const RefusalExplanation wanted{"", refusal.reason, refusal.node, refusal.source};
    const auto same = std::find_if(refusals.begin(), refusals.end(), [&](const RefusalExplanation& each) {
      return each.reason == wanted.reason && each.node == wanted.node && each.source == wanted.source;
    });
    const auto index = static_cast<size_t>(same - refusals.begin());
    if (same == refusals.end()) {
      refusals.push_back(wanted);
      names.emplace_back();
    }
    if (std::find(names[index].begin(), names[index].end(), constants.name(*slot)) == names[index].end()) {
      names[index].push_back(constants.name(*slot));
    }
  });
  constexpr size_t kMaxNames = 3;
  for (size_t i = 0; i < refusals.size(); ++i) {
    refusals[i].what = "constant ";
    for (size_t n = 0; n < std::min(names[i].size(), kMaxNames); ++n) {
      refusals[i].what += (n == 0 ? "" : ", ") + names[i][n];
    }
    if (names[i].size() > kMaxNames) {
      refusals[i].what += " and " + std::to_string(names[i].size() - kMaxNames) + " more";
    }
  }
  return refusals;
}

}  // namespace sconce
