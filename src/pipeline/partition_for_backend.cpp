#include "pipeline/partition_for_backend.h"

#include "analysis/cut_out.h"
#include "analysis/effects.h"
#include "analysis/nested_uses.h"
#include "ir/schema_match.h"

#include <algorithm>
#include <iterator>
#include <unordered_map>
#include <unordered_set>
#include <utility>
#include <vector>

namespace sconce {
namespace {

using Group = std::vector<Node*>;  // nodes in the order of their block
using Members = std::unordered_set<const Node*>;

bool is_used_outside(const Value& value, const Members& members) {
  return std::ranges::any_of(value.uses(), [&](const Use& use) { return !members.contains(use.user); });
}

// Chooses the nodes that are delegated together. Does not change the graph.
class Grouping {
 public:
  Grouping(Graph& graph, const BackendPartitioner& partitioner) : partitioner_(partitioner) { visit(graph.body()); }

  const std::vector<Group>& groups() const { return groups_; }

 private:
  void visit(Block& block) {
    Group group;
    ValueSet results;
    for (Node* node : block.nodes()) {
      if (node->kind() == prim::Constant) {
        continue;
      }
      if (is_supported(*node)) {
        group.push_back(node);
        results.insert(node->outputs().begin(), node->outputs().end());
      } else if (has_effects(*node) || uses_any(*node, results)) {
        finish(std::exchange(group, {}));
        results.clear();
      }
      for (Block* nested : node->blocks()) {
        visit(*nested);
      }
    }
    finish(std::move(group));
  }

  bool is_supported(const Node& node) const {
    return node.schema() != nullptr && node.blocks().empty() && !node.outputs().empty() && !has_effects(node) &&
           !node.op().reads_state && !node.op().differentiates &&
           std::ranges::all_of(node.outputs(),
                               [](const Value* output) { return output->type()->kind() == c10::TypeKind::TensorType; }) &&
           partitioner_.supports(node);
  }

  static bool may_be_view(const Node& node) {
    return node.op().results_may_share_memory ||
           std::ranges::any_of(node.schema()->returns(), [](const auto& result) { return result.alias_info() != nullptr; });
  }

  // A view that is used outside the group stays outside. The nodes before and after it form groups of their own.
  void finish(Group group) {
    const Members members(group.begin(), group.end());
    const auto shares = std::ranges::find_if(group, [&](const Node* node) {
      return may_be_view(*node) &&
             std::ranges::any_of(node->outputs(), [&](const Value* output) { return is_used_outside(*output, members); });
    });
    if (shares != group.end()) {
      finish(Group(group.begin(), shares));
      finish(Group(shares + 1, group.end()));
    } else {
      for (Group& connected : connected_parts(group)) {
        if (connected.size() >= partitioner_.min_nodes) {
          groups_.push_back(std::move(connected));
        }
      }
    }
  }

  // Splits a group into parts connected by results that members use. Each part is in the order of the group.
  static std::vector<Group> connected_parts(const Group& group) {
    std::unordered_map<const Node*, size_t> places;
    std::vector<size_t> parent(group.size());  // union-find; the root of a part is its first index
    const auto root_of = [&](size_t place) {
      while (parent[place] != place) {
        place = parent[place] = parent[parent[place]];
      }
      return place;
    };
    for (size_t i = 0; i < group.size(); ++i) {
      places[group[i]] = parent[i] = i;
      for (const Value* input : group[i]->inputs()) {
        if (const auto producer = places.find(input->node()); producer != places.end()) {
          const size_t a = root_of(producer->second);
          const size_t b = root_of(i);
          parent[std::max(a, b)] = std::min(a, b);
        }
      }
    }
    std::vector<Group> parts(group.size());
    for (size_t i = 0; i < group.size(); ++i) {
      parts[root_of(i)].push_back(group[i]);
    }
    std::erase_if(parts, [](const Group& part) { return part.empty(); });
    return parts;
  }

  const BackendPartitioner& partitioner_;
  std::vector<Group> groups_;
};

// The values of the group that are used outside.
std::vector<Value*> results_of(const Group& group) {
  const Members members(group.begin(), group.end());
  std::vector<Value*> results;
  for (const Node* node : group) {
    std::copy_if(node->outputs().begin(), node->outputs().end(), std::back_inserter(results),
                 [&](const Value* output) { return is_used_outside(*output, members); });
  }
  return results;
}

}  // namespace

PassCallback partition_for_backend(std::string name, BackendPartitioner partitioner) {
  return [name = std::move(name), partitioner = std::move(partitioner)](Graph& graph) {
    bool changed = false;
    const Grouping grouping(graph, partitioner);
    for (const Group& group : grouping.groups()) {
      const std::vector<Value*> results = results_of(group);
      if (results.empty()) {
        continue;  // dead
      }
      const CutOut cut = cut_out(group, results);
      if (SubgraphKernel kernel = partitioner.compile(cut.subgraph)) {
        Node& delegate = replace_by_subgraph(group, results, cut, kDelegateKind);
        delegate.set_attribute(attr::kBackend, name);
        delegate.set_attribute(attr::kKernel,
                               c10::IValue::make_capsule(c10::make_intrusive<KernelHolder>(std::move(kernel))));
        resolve(delegate);
        changed = true;
      }
    }
    return changed;
  };
}

}  // namespace sconce
