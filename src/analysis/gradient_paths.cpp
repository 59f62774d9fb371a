#include "analysis/gradient_paths.h"

#include "analysis/effects.h"
#include "analysis/memory/memory_source.h"
#include "analysis/nested_uses.h"
#include "base/flat_map.h"

#include <algorithm>
#include <unordered_map>

namespace sconce {
namespace {

// Goes through the nodes once forward, to find which incoming gradients reach them, and once backward, to find which
// outgoing gradients they lead to. A recorded backward writes memory: who reads it depends on what was written before, and
// who writes it leads to where it is read later.
class GradientPaths {
 public:
  GradientPaths(const Graph& backward, size_t incoming, size_t outgoing)
      : backward_(backward), incoming_(incoming), outgoing_(outgoing), shares_(incoming, Dependence(incoming)) {
    for (const Node* node : backward.body().nodes()) {
      nodes_.push_back(node);
      for (size_t i = 0; i < node->inputs().size(); ++i) {
        if (may_write_operand(*node, i)) {
          written_.try_emplace(&base_of_memory(*node->input(i)), incoming);
        }
      }
    }
    for (const Node* node : nodes_) {
      find_sources(*node);
    }
  }

  void find_targets() {
    for (size_t i = 0; i < outgoing_; ++i) {
      paths_of(backward_.outputs()[i]).targets[i] = true;
      if (const Value* base = written_base(*backward_.outputs()[i])) {
        paths_of_memory(base).targets[i] = true;
      }
    }
    for (auto node = nodes_.rbegin(); node != nodes_.rend(); ++node) {
      visit(**node);
    }
  }

  const Dependence& table(const Value* value) { return paths_of(value).pairs; }
  const std::vector<Dependence>& shares() const { return shares_; }
  // Returns the incoming gradients that the value depends on, after the nodes that have been gone through.
  Dependence sources_of(const Value& value) const {
    Dependence sources(incoming_);
    if (value.node() == backward_.body().param_node() && value.offset() < incoming_) {
      sources[value.offset()] = true;
    } else if (const auto made = sources_.find(value.node()); made != sources_.end()) {
      merge(sources, made->second);
    }
    if (const Value* base = written_base(value)) {
      merge(sources, written_.at(base));
    }
    return sources;
  }

 private:
  // The way on from a value: the outgoing gradients that it reaches, and the pairs (incoming, outgoing) on whose paths it
  // is.
  struct Paths {
    Dependence targets;
    Dependence pairs;
  };

  Paths& sized(Paths& paths) const {
    paths.targets.resize(outgoing_);
    paths.pairs.resize(incoming_ * outgoing_);
    return paths;
  }
  Paths& paths_of(const Value* value) { return sized(paths_[value]); }
  // The way on from what is in the memory.
  Paths& paths_of_memory(const Value* base) { return sized(memory_paths_[base]); }

  // Returns the base of the value's memory if a node writes it; null if none does.
  const Value* written_base(const Value& value) const {
    const Value* base = written_.empty() ? nullptr : &base_of_memory(value);
    return base != nullptr && written_.contains(base) ? base : nullptr;
  }

  void find_sources(const Node& node) {
    Dependence sources(incoming_);
    bool reads_forward = false;  // a tensor that depends on no gradient
    for_each_operand(node, [&](const Value* operand) {
      const Dependence of_operand = sources_of(*operand);
      reads_forward = reads_forward || (!any(of_operand) && operand->type()->kind() == c10::TypeKind::TensorType);
      merge(sources, of_operand);
    });
    const bool frees = reads_forward && node.opcode() != Opcode::kAdd && node.op().reads != Reads::kMetadata;
    for (size_t i = 0; i < incoming_ && frees; ++i) {
      if (sources[i]) {
        merge(shares_[i], sources);
      }
    }
    for (size_t i = 0; i < node.inputs().size(); ++i) {
      if (may_write_operand(node, i)) {
        merge(written_.at(&base_of_memory(*node.input(i))), sources);
      }
    }
    sources_.emplace(&node, std::move(sources));
  }

  // A node that gradients reach is on the path of each of them to each of its targets, and so are its operands. One that
  // none reaches computes forward values again, and inherits the pairs of its users.
  // Sizes and dtypes of a value stay what they were when its elements are written: a node that asks for them reads nothing.
  void visit(const Node& node) {
    if (node.op().reads == Reads::kMetadata) {
      return;
    }
    const Dependence& sources = sources_.at(&node);
    const bool has_source = any(sources);
    Paths all{Dependence(outgoing_), Dependence(incoming_ * outgoing_)};
    const auto lead_to = [&](const Paths& paths) {
      merge(all.targets, paths.targets);
      if (!has_source) {
        merge(all.pairs, paths.pairs);
      }
    };
    for (const Value* output : node.outputs()) {
      lead_to(paths_of(output));
    }
    for (size_t i = 0; i < node.inputs().size(); ++i) {
      if (may_write_operand(node, i)) {
        lead_to(paths_of_memory(&base_of_memory(*node.input(i))));
      }
    }
    for (size_t source = 0; source < incoming_; ++source) {
      for (size_t target = 0; sources[source] && target < outgoing_; ++target) {
        all.pairs[source * outgoing_ + target] = all.pairs[source * outgoing_ + target] || all.targets[target];
      }
    }
    for_each_operand(node, [&](const Value* operand) {
      const auto lead_on = [&all](Paths& paths) {
        merge(paths.targets, all.targets);
        merge(paths.pairs, all.pairs);
      };
      lead_on(paths_of(operand));
      if (const Value* base = written_base(*operand)) {
        lead_on(paths_of_memory(base));
      }
    });
  }

  const Graph& backward_;
  const size_t incoming_;
  const size_t outgoing_;
  std::vector<const Node*> nodes_;
  std::vector<Dependence> shares_;
  FlatMap<const Node*, Dependence> sources_;
  std::unordered_map<const Value*, Dependence> written_;  // by base of memory: the sources of what has been written so far
  FlatMap<const Value*, Paths> paths_;
  FlatMap<const Value*, Paths> memory_paths_;
};

}  // namespace

std::vector<Dependence> gradient_paths(const Graph& backward, size_t incoming, size_t outgoing, size_t values) {
  GradientPaths paths(backward, incoming, outgoing);
  paths.find_targets();
  std::vector<Dependence> tables;
  for (size_t i = incoming; i < incoming + values; ++i) {
    tables.push_back(paths.table(backward.inputs()[i]));
  }
  return tables;
}

std::vector<Dependence> gradients_of_outputs(const Graph& backward, size_t incoming) {
  const GradientPaths paths(backward, incoming, 0);
  std::vector<Dependence> sources;
  for (const Value* output : backward.outputs()) {
    sources.push_back(paths.sources_of(*output));
  }
  return sources;
}

std::vector<Dependence> gradients_that_share(const Graph& backward, size_t incoming) {
  return GradientPaths(backward, incoming, 0).shares();
}

}  // namespace sconce
