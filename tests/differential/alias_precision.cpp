#include "tests/differential/alias_precision.h"

#include "tests/differential/memory_claims.h"

#include "analysis/memory/alias_sets.h"
#include "load/export_graph.h"

#include <torch/csrc/jit/ir/alias_analysis.h>
#include <torch/csrc/jit/ir/ir.h>

#include <algorithm>
#include <cstdio>

namespace sconce::testing {
namespace {

using TorchValues = std::unordered_map<const Value*, torch::jit::Value*>;

// The exported graph has one node for one node.
void pair_up(const Block& ours, torch::jit::Block& theirs, TorchValues& values) {
  for (size_t i = 0; i < ours.params().size(); ++i) {
    values[ours.params()[i]] = theirs.inputs()[i];
  }
  auto next = theirs.nodes().begin();
  for (const Node* node : ours.nodes()) {
    torch::jit::Node& other = **next++;
    for (size_t i = 0; i < node->outputs().size(); ++i) {
      values[node->output(i)] = other.outputs()[i];
    }
    for (size_t i = 0; i < node->blocks().size(); ++i) {
      pair_up(*node->block(i), *other.blocks()[i], values);
    }
  }
}

bool intersect(const std::set<Piece>& a, const std::set<Piece>& b) {
  return std::any_of(a.begin(), a.end(), [&](Piece piece) { return b.contains(piece); });
}

std::string percent(size_t part, size_t whole) {
  char text[16];
  std::snprintf(text, sizeof(text), "%8.2f %%",
                whole == 0 ? 0 : 100.0 * static_cast<double>(part) / static_cast<double>(whole));
  return text;
}

std::string padded(const std::string& text, size_t width) {
  return text + std::string(width - std::min(width, text.size()), ' ');
}

std::string right(size_t number, size_t width) {
  const std::string text = std::to_string(number);
  return std::string(width - std::min(width, text.size()), ' ') + text;
}

}  // namespace

PairCounts& PairCounts::operator+=(const PairCounts& other) {
  values += other.values;
  pairs += other.pairs;
  shared += other.shared;
  ours += other.ours;
  torch += other.torch;
  only_ours += other.only_ours;
  only_torch += other.only_torch;
  torch_missed += other.torch_missed;
  return *this;
}

PairCounts count_pairs(const Graph& graph, const RecordedRun& run) {
  const AliasSets sets(graph);
  const std::shared_ptr<torch::jit::Graph> exported = export_graph(graph);
  const torch::jit::AliasDb alias_db(exported);
  TorchValues values;
  pair_up(graph.body(), *exported->block(), values);
  struct Known {
    const Value* value;
    const torch::jit::Value* value_of_torch;
    const std::set<Piece>* held;
  };
  std::vector<Known> known;
  for (const Value* value : values_in_order(graph)) {
    const auto held = run.held.find(value);
    // A value that AliasDb does not follow is not even its own alias.
    if (held != run.held.end() && alias_db.mayAlias(values.at(value), values.at(value))) {
      known.push_back({value, values.at(value), &held->second});
    }
  }
  PairCounts counts;
  counts.values = known.size();
  for (size_t i = 0; i < known.size(); ++i) {
    for (size_t j = 0; j < i; ++j) {
      const bool shared = intersect(*known[i].held, *known[j].held);
      const bool ours = sets.may_alias(*known[i].value, *known[j].value);
      const bool torch = alias_db.mayAlias(known[i].value_of_torch, known[j].value_of_torch);
      ++counts.pairs;
      counts.shared += shared ? 1 : 0;
      counts.ours += ours ? 1 : 0;
      counts.torch += torch ? 1 : 0;
      counts.only_ours += ours && !torch && !shared ? 1 : 0;
      counts.only_torch += torch && !ours ? 1 : 0;
      counts.torch_missed += shared && !torch ? 1 : 0;
    }
  }
  return counts;
}

std::string precision_head() {
  return padded("", 28) +
         "    values       pairs     shared  AliasSets    AliasDb  only AliasSets  only AliasDb  AliasDb misses\n";
}

std::string precision_row(const std::string& name, const PairCounts& counts) {
  return padded(name, 28) + right(counts.values, 10) + right(counts.pairs, 12) + " " + percent(counts.shared, counts.pairs) +
         " " + percent(counts.ours, counts.pairs) + " " + percent(counts.torch, counts.pairs) + "      " +
         percent(counts.only_ours, counts.pairs) + "    " + percent(counts.only_torch, counts.pairs) +
         right(counts.torch_missed, 16) + "\n";
}

}  // namespace sconce::testing
