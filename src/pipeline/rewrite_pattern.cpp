#include "pipeline/rewrite_pattern.h"

#include "analysis/effects.h"
#include "analysis/memory/escapes.h"
#include "analysis/memory/memory_writes.h"
#include "ir/text/parse.h"
#include "ir/text/print.h"
#include "ir/verify/verify.h"

#include <algorithm>
#include <unordered_set>

namespace sconce {
namespace {

std::unique_ptr<Graph> parse_side(const char* side, std::string_view text) {
  std::unique_ptr<Graph> graph;
  try {
    graph = parse(text);
  } catch (const ParseError& failure) {
    TORCH_CHECK(false, "the ", side, " cannot be read: ", failure.what());
  }
  for (const Violation& violation : find_violations(*graph)) {
    TORCH_CHECK(false, "the ", side, " is no valid graph: ", violation.message);
  }
  for (const Node* node : graph->body().nodes()) {
    TORCH_CHECK(node->blocks().empty() && !effects_of(*node).any(), "the ", side, " holds a node with ",
                node->blocks().empty() ? "effects" : "blocks", ", which rewriting cannot move: ", print_node_line(*node));
  }
  return graph;
}

const Node* last_node_of(const Graph& pattern) {
  const Node* last = pattern.body().last();
  while (last != nullptr && last->kind() == prim::Constant) {
    last = last->previous();
  }
  TORCH_CHECK(last != nullptr, "the pattern holds no node but constants");
  std::unordered_set<const Node*> reached = {last};
  for (const Node* node = last; node != nullptr; node = node->previous()) {
    TORCH_CHECK(reached.contains(node) || node->kind() == prim::Constant,
                "this node of the pattern does not lead to its last one: ", print_node_line(*node));
    for (const Value* input : node->inputs()) {
      reached.insert(input->node());
    }
  }
  return last;
}

// Returns whether all facts that the pattern's input names are known of the value.
bool has_facts_of(const Value& value, const Value& hole) {
  if (hole.facts() == nullptr || hole.facts()->empty()) {
    return true;
  }
  const TensorFacts& wanted = *hole.facts();
  const auto* constant = value.constant();
  const TensorFacts known = constant && constant->isTensor() ? facts_of(constant->toTensor())
                            : value.facts() != nullptr       ? *value.facts()
                                                             : TensorFacts{};
  const auto agrees = [](const auto& want, const auto& have) { return !want || want == have; };
  bool sizes_agree = !wanted.sizes || (known.sizes && known.sizes->size() == wanted.sizes->size());
  for (size_t i = 0; sizes_agree && wanted.sizes && i < wanted.sizes->size(); ++i) {
    sizes_agree = (*wanted.sizes)[i].is_unknown() || (*wanted.sizes)[i] == (*known.sizes)[i];
  }
  return sizes_agree && agrees(wanted.dtype, known.dtype) && agrees(wanted.device, known.device) &&
         agrees(wanted.layout, known.layout) && agrees(wanted.strides, known.strides) &&
         agrees(wanted.requires_grad, known.requires_grad) && agrees(wanted.defined, known.defined);
}

}  // namespace

RewritePattern::RewritePattern(std::string_view pattern, std::string_view replacement)
    : pattern_(parse_side("pattern", pattern)),
      replacement_(parse_side("replacement", replacement)),
      last_(last_node_of(*pattern_)) {
  const auto same_types = [](c10::ArrayRef<Value*> a, c10::ArrayRef<Value*> b) {
    return std::equal(a.begin(), a.end(), b.begin(), b.end(),
                      [](const Value* x, const Value* y) { return *x->type() == *y->type(); });
  };
  TORCH_CHECK(
      same_types(pattern_->inputs(), replacement_->inputs()) && same_types(pattern_->outputs(), replacement_->outputs()),
      "pattern and replacement do not have the same inputs and outputs");
  const AliasSets old_sets(*pattern_);
  const AliasSets new_sets(*replacement_);
  for (size_t i = 0; i < pattern_->outputs().size(); ++i) {
    shares_alike_.push_back(!old_sets.is_wildcard(*pattern_->outputs()[i]) &&
                            !new_sets.is_wildcard(*replacement_->outputs()[i]));
  }
}

bool RewritePattern::fits(const Value& wanted, Value& value, Match& match) const {
  const auto [known, is_new] = match.try_emplace(&wanted, &value);
  if (!is_new) {
    return known->second == &value;
  }
  const Node& node = *wanted.node();
  if (node.kind() == prim::Param) {
    return value.type()->isSubtypeOf(*wanted.type()) && has_facts_of(value, wanted);
  }
  if (node.kind() == prim::Constant) {
    const auto* constant = value.constant();
    return constant && *value.type() == *wanted.type() && c10::IValue(*constant) == *wanted.constant();
  }
  const Node& candidate = *value.node();
  if (candidate.kind() != node.kind() || candidate.schema() != node.schema() || value.offset() != wanted.offset() ||
      candidate.inputs().size() != node.inputs().size() || candidate.outputs().size() != node.outputs().size() ||
      !equal_attributes(candidate.attributes(), node.attributes())) {
    return false;
  }
  for (size_t i = 0; i < node.outputs().size(); ++i) {
    const auto [other, is_first] = match.try_emplace(node.output(i), candidate.output(i));
    if (!is_first && other->second != candidate.output(i)) {
      return false;
    }
  }
  for (size_t i = 0; i < node.inputs().size(); ++i) {
    if (!fits(*node.input(i), *candidate.input(i), match)) {
      return false;
    }
  }
  return true;
}

bool RewritePattern::may_replace(const Node& last, const Match& match, const AliasSets& aliases,
                                 const MemoryWrites& writes) const {
  const c10::ArrayRef<Value*> outputs = pattern_->outputs();
  std::unordered_set<const Node*> matched;
  for (const Node* node : pattern_->body().nodes()) {
    if (node->kind() != prim::Constant) {
      matched.insert(match.at(node->output(0))->node());
    }
  }
  for (const Node* node : pattern_->body().nodes()) {
    if (node->kind() == prim::Constant) {
      continue;
    }
    const Node& found = *match.at(node->output(0))->node();
    const bool is_known = writes.covers(found) && std::ranges::all_of(found.inputs(), [&](const Value* input) {
                            return input->node()->kind() == prim::Param || writes.covers(*input->node());
                          });
    if (found.owning_block() != last.owning_block() || !is_known) {
      return false;  // nodes made in this sweep are matched in the next
    }
    if (&found != &last &&
        (writes.state_may_change_between(found, last) || std::ranges::any_of(found.inputs(), [&](const Value* input) {
           return writes.may_be_written_between(*input, found, last);
         }))) {
      return false;
    }
    for (const Value* value : node->outputs()) {
      const bool is_output = std::ranges::find(outputs, value) != outputs.end();
      const Value& inner = *match.at(value);
      if (!is_output && std::ranges::any_of(inner.uses(), [&](const Use& use) { return !matched.contains(use.user); })) {
        return false;
      }
      // The results are computed at the last node, so no other node may use one before.
      if (is_output && &found != &last && std::ranges::any_of(inner.uses(), [&](const Use& use) {
            return !matched.contains(use.user) && !writes.is_after(*use.user, last);
          })) {
        return false;
      }
    }
  }
  const bool operands_change = std::ranges::any_of(pattern_->inputs(), [&](const Value* hole) {
    const auto operand = match.find(hole);
    return operand != match.end() && aliases.may_be_written(*operand->second);
  });
  for (size_t i = 0; i < outputs.size(); ++i) {
    const auto output = match.find(outputs[i]);
    if (output == match.end() ||
        (!shares_alike_[i] && (operands_change || aliases.may_be_written(*output->second) || may_escape(*output->second)))) {
      return false;
    }
  }
  return true;
}

void RewritePattern::replace(Node& last, const Match& match) const {
  Graph& graph = last.graph();
  ValueMap values;
  for (size_t i = 0; i < pattern_->inputs().size(); ++i) {
    values.emplace(replacement_->inputs()[i], match.at(pattern_->inputs()[i]));
  }
  const Node* const before = last.previous();
  const std::vector<Value*> results = graph.copy_nodes(replacement_->body(), &last, values);
  for (Node* made = before != nullptr ? before->next() : last.owning_block()->first(); made != &last; made = made->next()) {
    made->set_location(last.location());
  }
  for (size_t i = 0; i < results.size(); ++i) {
    match.at(pattern_->outputs()[i])->replace_all_uses_with(results[i]);
  }
  // Last first, so that each node is unused when it is erased. Constants are left to other passes.
  for (const Node* node = last_; node != nullptr; node = node->previous()) {
    if (node->kind() != prim::Constant) {
      match.at(node->output(0))->node()->erase();
    }
  }
}

bool RewritePattern::sweep(Graph& graph) const {
  const AliasSets aliases(graph);
  const MemoryWrites writes(graph, aliases);
  bool changed = false;
  for_each_node(graph.body(), [&](Node* node) {
    Match match;
    if (node->kind() == last_->kind() && writes.covers(*node) && fits(*last_->output(0), *node->output(0), match) &&
        may_replace(*node, match, aliases, writes)) {
      replace(*node, match);
      changed = true;
    }
  });
  return changed;
}

bool RewritePattern::apply(Graph& graph) const {
  constexpr int kMaxSweeps = 64;  // each sweep matches what the one before it made
  const size_t max_nodes = 10'000 + 100 * graph.node_count();
  int sweeps = 0;
  while (sweep(graph)) {
    TORCH_CHECK(++sweeps < kMaxSweeps && graph.node_count() <= max_nodes,
                "the replacement matches the pattern again and again");
  }
  return sweeps > 0;
}

}  // namespace sconce
