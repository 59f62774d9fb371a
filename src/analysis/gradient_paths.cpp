#include "analysis/gradient_paths.h"

#include "analysis/nested_uses.h"
#include "base/flat_map.h"

#include <algorithm>

namespace sconce {
namespace {

class GradientPaths {
 public:
  GradientPaths(const Graph& backward, size_t incoming)
      : backward_(backward), incoming_(incoming), outgoing_(backward.outputs().size()) {
    std::vector<const Node*> nodes;
    for (const Node* node : backward.body().nodes()) {
      nodes.push_back(node);
      sources_.emplace(node, sources_of(*node));
    }
    for (size_t i = 0; i < outgoing_; ++i) {
      paths_of(backward.outputs()[i]).targets[i] = true;
    }
    for (auto node = nodes.rbegin(); node != nodes.rend(); ++node) {
      visit(**node);
    }
  }

  const Dependence& table(const Value* value) { return paths_of(value).pairs; }

  std::vector<Dependence> shares() const {
    std::vector<Dependence> shares(incoming_, Dependence(incoming_));
    for (const Node* node : backward_.body().nodes()) {
      const Dependence& sources = sources_.at(node);
      for (size_t i = 0; i < incoming_ && reads_forward(*node); ++i) {
        if (sources[i]) {
          merge(shares[i], sources);
        }
      }
    }
    return shares;
  }

 private:
  // The way on from a value: the outgoing gradients that it reaches, and the pairs (incoming, outgoing) on whose paths it
  // is.
  struct Paths {
    Dependence targets;
    Dependence pairs;
  };

  Paths& paths_of(const Value* value) {
    Paths& found = paths_[value];
    found.targets.resize(outgoing_);
    found.pairs.resize(incoming_ * outgoing_);
    return found;
  }

  // Returns the incoming gradients that reach the node.
  Dependence sources_of(const Node& node) const {
    Dependence sources(incoming_);
    for_each_operand(node, [&](const Value* operand) {
      if (operand->node() == backward_.body().param_node() && operand->offset() < incoming_) {
        sources[operand->offset()] = true;
      } else if (const auto before = sources_.find(operand->node()); before != sources_.end()) {
        merge(sources, before->second);
      }
    });
    return sources;
  }

  // Returns whether an operand is a tensor that depends on no gradient.
  bool reads_forward(const Node& node) const {
    if (node.opcode() == Opcode::kAdd || node.op().reads == Reads::kMetadata) {
      return false;
    }
    bool reads = false;
    for_each_operand(node, [&](const Value* operand) {
      const bool is_gradient = operand->node() == backward_.body().param_node() && operand->offset() < incoming_;
      const auto before = sources_.find(operand->node());
      const bool depends = before != sources_.end() && std::ranges::find(before->second, true) != before->second.end();
      reads = reads || (!is_gradient && !depends && operand->type()->kind() == c10::TypeKind::TensorType);
    });
    return reads;
  }

  // A node that gradients reach is on the path of each of them to each of its targets, and so are its operands. One that
  // none reaches computes forward values again, and inherits the pairs of its users.
  // Sizes and dtypes of a value stay what they were when its elements are written: a node that asks for them reads nothing.
  void visit(const Node& node) {
    if (node.op().reads == Reads::kMetadata) {
      return;
    }
    const Dependence& sources = sources_.at(&node);
    const bool has_source = std::find(sources.begin(), sources.end(), true) != sources.end();
    Paths all{Dependence(outgoing_), Dependence(incoming_ * outgoing_)};
    for (const Value* output : node.outputs()) {
      merge(all.targets, paths_of(output).targets);
      if (!has_source) {
        merge(all.pairs, paths_of(output).pairs);
      }
    }
    for (size_t source = 0; source < incoming_; ++source) {
      for (size_t target = 0; sources[source] && target < outgoing_; ++target) {
        all.pairs[source * outgoing_ + target] = all.pairs[source * outgoing_ + target] || all.targets[target];
      }
    }
    for_each_operand(node, [&](const Value* operand) {
      Paths& paths = paths_of(operand);
      merge(paths.targets, all.targets);
      merge(paths.pairs, all.pairs);
    });
  }

  const Graph& backward_;
  const size_t incoming_;
  const size_t outgoing_;
  FlatMap<const Node*, Dependence> sources_;
  FlatMap<const Value*, Paths> paths_;
};

}  // namespace

std::vector<Dependence> gradient_paths(const Graph& backward, size_t incoming, size_t values) {
  GradientPaths paths(backward, incoming);
  std::vector<Dependence> tables;
  for (size_t i = incoming; i < incoming + values; ++i) {
    tables.push_back(paths.table(backward.inputs()[i]));
  }
  return tables;
}

std::vector<Dependence> gradients_that_share(const Graph& backward, size_t incoming) {
  return GradientPaths(backward, incoming).shares();
}

}  // namespace sconce
