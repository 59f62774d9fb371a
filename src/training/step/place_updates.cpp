#include "training/step/place_updates.h"

#include "analysis/effects.h"
#include "analysis/memory/alias_sets.h"
#include "base/flat_map.h"
#include "executor/stages.h"
#include "load/compile_op_row.h"

#include <algorithm>
#include <map>
#include <memory>
#include <numeric>
#include <string>
#include <string_view>

namespace sconce {
namespace {

// Returns the update of a parameter as a TorchScript function:
//
//   def step(param: Tensor, grad: Tensor, exp_avg: Tensor, …, step_size: float, …, beta1: float, …):
//       exp_avg.mul_(beta1).add_(grad, alpha=rest1)
//       …
std::string function_of(const Update& update, const Clipping& clipping) {
  std::string text = "def step(param: Tensor, grad: Tensor";
  const auto declare = [&](const char* name, const char* type) { text += std::string(", ") + name + ": " + type; };
  std::for_each(update.states.begin(), update.states.end(), [&](const char* name) { declare(name, "Tensor"); });
  std::for_each(update.step_numbers.begin(), update.step_numbers.end(), [&](const char* name) { declare(name, "float"); });
  std::for_each(update.numbers.begin(), update.numbers.end(), [&](const char* name) { declare(name, "float"); });
  std::string body;
  if (clipping.norm) {
    declare("clip_factor", "Tensor");
    body += "grad = grad.mul(clip_factor)\n";
  }
  if (clipping.value) {
    declare("clip_low", "float");
    declare("clip_high", "float");
    body += "grad = grad.clamp(clip_low, clip_high)\n";
  }
  body += update.body;
  text += "):\n";
  for (std::string_view rest = body; !rest.empty();) {
    const size_t end = rest.find('\n') + 1;
    text.append("    ").append(rest.substr(0, end));
    rest.remove_prefix(end);
  }
  return text;
}

std::shared_ptr<Graph> compile_update(const StepUpdates& updates, unsigned variant, bool has_kernels, bool is_exact,
                                      PassRunner& runner) {
  const Update update = updates.rule->update(variant);
  std::unique_ptr<Graph> graph = compile_function(updates.rule->name(), function_of(update, updates.clipping));
  while (!graph->outputs().empty()) {
    graph->body().remove_return(0);
  }
  run_stage(Stage::kRequired, graph, runner);
  run_stage(Stage::kOptimize, graph, runner);
  std::shared_ptr<Graph> fused = std::move(graph);
  fuse_passes(fused, GroupMoves::kOperators, has_kernels && !(is_exact && kernels_round_otherwise(update)),
              /*packs_weights=*/false, runner);
  return fused;
}

// Where an update may stand in a graph's body.
class UpdatePositions {
 public:
  explicit UpdatePositions(const Graph& graph) : aliases_(graph) {
    for (Node* node : graph.body().nodes()) {
      positions_[node] = nodes_.size();
      if (may_raise_by_elements(*node)) {
        first_ = nodes_.size() + 1;
      }
      nodes_.push_back(node);
    }
    for_each_node(graph.body(), [&](const Node* node) {
      if (!node->op().is_language() && effects_of(*node).writes) {
        writes_.push_back(node);
      }
    });
  }

  // Returns the node of the body at the position; null at the end.
  Node* at(size_t position) const { return position < nodes_.size() ? nodes_[position] : nullptr; }
  // Returns the first position after which no node raises because of elements.
  size_t first() const { return first_; }

  // Returns the first position at which the tensor has its final elements.
  size_t after_writes(const Value& value) const {
    size_t after = value.node() == value.graph().body().param_node() ? 0 : after_node(*value.node());
    for (const Node* node : writes_) {
      if (aliases_.may_write(*node, value)) {
        after = std::max(after, after_node(*node));
      }
    }
    return after;
  }

  // Returns the position after the last read of the input's memory. Requires that no other input shares it.
  size_t after_uses(const Value& input) const {
    size_t after = 0;
    FlatSet<const Value*> seen = {&input};
    std::vector<const Value*> members = {&input};
    const auto add = [&](c10::ArrayRef<Value*> values) {
      for (const Value* value : values) {
        if (aliases_.may_alias(*value, input) && seen.insert(value).second) {
          members.push_back(value);
        }
      }
    };
    for (size_t i = 0; i < members.size(); ++i) {
      for (const Use& use : members[i]->uses()) {
        const Node* user = use.user->kind() == prim::Return ? use.user->owning_block()->owner() : use.user;
        if (user == nullptr) {
          return nodes_.size();  // the graph returns it
        }
        after = std::max(after, after_node(*user));
        add(user->outputs());
        for (const Block* block : user->blocks()) {
          add(block->params());
        }
      }
    }
    return after;
  }

 private:
  size_t after_node(const Node& node) const {
    const Node* around = &node;
    while (around->owning_block()->owner() != nullptr) {
      around = around->owning_block()->owner();
    }
    return positions_.at(around) + 1;
  }

  const AliasSets aliases_;
  FlatMap<const Node*, size_t> positions_;
  std::vector<Node*> nodes_;
  std::vector<const Node*> writes_;
  size_t first_ = 0;
};

// Collects updates, in their order, until their gradients have `most_bytes`. Moves these to the place of the last one.
void gather(std::vector<size_t>& positions, const std::vector<StepUpdates::OfParameter>& parameters, size_t most_bytes) {
  std::vector<size_t> order(positions.size());
  std::iota(order.begin(), order.end(), size_t{0});
  std::stable_sort(order.begin(), order.end(), [&](size_t a, size_t b) { return positions[a] < positions[b]; });
  size_t first = 0;
  size_t bytes = 0;
  for (size_t i = 0; i < order.size(); ++i) {
    bytes += parameters[order[i]].bytes;
    if (bytes >= most_bytes || i + 1 == order.size()) {
      for (size_t k = first; k < i; ++k) {
        positions[order[k]] = positions[order[i]];
      }
      first = i + 1;
      bytes = 0;
    }
  }
}

}  // namespace

void place_updates(Graph& graph, const StepUpdates& updates, bool has_kernels, bool is_exact, size_t gathered_bytes,
                   PassRunner& runner) {
  std::map<unsigned, std::shared_ptr<Graph>> compiled;  // by variant
  for (const StepUpdates::OfParameter& parameter : updates.parameters) {
    const unsigned variant = updates.groups[parameter.group].variant;
    if (!compiled.contains(variant)) {
      compiled[variant] = compile_update(updates, variant, has_kernels, is_exact, runner);
    }
  }
  const UpdatePositions allowed(graph);
  const Value* const factor = updates.clipping.norm ? graph.outputs().back() : nullptr;
  std::vector<size_t> positions;
  for (const StepUpdates::OfParameter& parameter : updates.parameters) {
    size_t position = std::max({allowed.first(), allowed.after_uses(*graph.inputs()[parameter.param]),
                                allowed.after_writes(*graph.outputs()[parameter.gradient])});
    if (factor != nullptr) {
      position = std::max(position, allowed.after_writes(*factor));
    }
    positions.push_back(position);
  }
  gather(positions, updates.parameters, gathered_bytes);
  std::vector<Node*> next;  // the nodes before which the updates stand
  for (const size_t position : positions) {
    next.push_back(allowed.at(position) != nullptr ? allowed.at(position) : graph.body().return_node());
  }
  for (size_t i = 0; i < updates.parameters.size(); ++i) {
    const StepUpdates::OfParameter& parameter = updates.parameters[i];
    const StepUpdates::Group& group = updates.groups[parameter.group];
    const Update update = updates.rule->update(group.variant);
    std::vector<Value*> operands = {graph.inputs()[parameter.param], graph.outputs()[parameter.gradient]};
    const auto add_inputs = [&](size_t first, size_t count) {
      const auto inputs = graph.inputs().slice(first, count);
      operands.insert(operands.end(), inputs.begin(), inputs.end());
    };
    add_inputs(parameter.first_state, update.states.size());
    add_inputs(parameter.first_step_number, update.step_numbers.size());
    add_inputs(group.first_number, update.numbers.size());
    if (factor != nullptr) {
      operands.push_back(graph.outputs().back());
    }
    if (const auto value = updates.clipping.value) {
      operands.push_back(graph.insert_constant(-*value, next[i]));
      operands.push_back(graph.insert_constant(*value, next[i]));
    }
    const Graph& source = *compiled.at(group.variant);
    ValueMap values;
    for (size_t k = 0; k < operands.size(); ++k) {
      values.emplace(source.inputs()[k], operands[k]);
    }
    graph.copy_nodes(source.body(), next[i], values);
  }
  while (graph.outputs().size() > updates.kept) {
    graph.body().remove_return(updates.kept);
  }
}

}  // namespace sconce
