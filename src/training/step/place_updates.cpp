#include "training/step/place_updates.h"

#include "load/compile_op_row.h"
#include "training/step/optimize_ending.h"
#include "training/step/step_positions.h"

#include <algorithm>
#include <iterator>
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
  return optimize_ending(std::move(graph), has_kernels && !(is_exact && kernels_round_otherwise(update)), runner);
}

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
  const StepPositions allowed(graph);
  const Value* const factor = updates.clipping.norm ? graph.outputs().back() : nullptr;
  std::vector<size_t> positions;
  for (const StepUpdates::OfParameter& parameter : updates.parameters) {
    size_t position = std::max({allowed.first_after_raises(), allowed.after_uses(*graph.inputs()[parameter.param]),
                                allowed.after_writes(*graph.outputs()[parameter.gradient])});
    if (factor != nullptr) {
      position = std::max(position, allowed.after_writes(*factor));
    }
    positions.push_back(position);
  }
  gather(positions, updates.parameters, gathered_bytes);
  std::vector<Node*> next;  // the nodes before which the updates stand
  std::ranges::transform(positions, std::back_inserter(next), [&](size_t position) { return allowed.at(position); });
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
