#include "executor/recorded_calls/result_parts.h"

#include "analysis/dependence.h"
#include "analysis/effects.h"
#include "analysis/memory/memory_source.h"
#include "autodiff/select/roles.h"
#include "autodiff/split/graph_copy.h"

#include <algorithm>
#include <map>
#include <set>
#include <string>
#include <unordered_map>
#include <unordered_set>
#include <utility>

namespace sconce {
namespace {

// Each part is recorded, compiled and run on its own.
constexpr size_t kMaxParts = 64;

class ResultSplitter {
 public:
  ResultSplitter(const Graph& forward, size_t shared, const std::vector<const Value*>& returned,
                 const std::vector<const Value*>& differentiable)
      : forward_(forward), shared_(shared), returned_(returned), differentiable_(differentiable) {
    for (const Node* node : forward.body().nodes()) {
      if (node->opcode() == Opcode::kConstant) {
        continue;
      }
      positions_.emplace(node, nodes_.size());
      nodes_.push_back(node);
      for (size_t i = 0; i < node->inputs().size(); ++i) {
        if (may_write_operand(*node, i)) {
          written_.insert(&base_of_memory(*node->input(i)));
        }
      }
    }
  }

  Expected<std::vector<ResultPart>> run() {
    find_reached();
    number_parts();
    if (parts_.size() <= 2) {
      return std::vector<ResultPart>();
    }
    if (parts_.size() > kMaxParts) {
      return Refusal::because("its results are computed from each other in more than " + std::to_string(kMaxParts) +
                              " parts");
    }
    std::vector<size_t> order = order_of_parts();
    if (order.size() < parts_.size()) {
      return Refusal::because("what its results are computed from is written, or drawn, in turns");
    }
    if (order.back() == parts_.size() - 1) {  // what leads to no result needs no plan of its own
      order.pop_back();
      for (const size_t node : parts_.back()) {
        part_of_[node] = order.back();
        parts_[order.back()].push_back(node);
      }
    }
    return make_parts(order);
  }

 private:
  // Numbers that are computed from sizes, lists, and views that are no results are made again in each part that reads them.
  // Views of written memory are not: a gradient must flow through the write, and would bypass it in a view made later.
  bool is_made_again(const Node& node) const {
    const auto is_kept = [this](const Value* output) {
      return is_returned(*output) || written_.contains(&base_of_memory(*output));
    };
    if (has_effects(node) || std::ranges::any_of(node.outputs(), is_kept)) {
      return false;
    }
    const auto is_number = [](const Value* value) { return is_number_like(*value); };
    return (std::ranges::all_of(node.outputs(), is_number) && std::ranges::all_of(node.inputs(), is_number)) ||
           node.opcode() == Opcode::kListConstruct || (is_cheap_view(node) && !node.op().may_copy);
  }
  bool is_returned(const Value& value) const { return std::ranges::find(returned_, &value) != returned_.end(); }

  // Finds the results that each node's values, and what it writes, lead to: from the last node to the first. Whoever uses
  // memory reads what was written there before.
  void find_reached() {
    std::unordered_map<const Value*, Dependence> of_values;
    std::unordered_map<const Value*, Dependence> of_memory;  // what uses it after this place leads to
    const auto merge_into = [this](Dependence& into, const Dependence& from) {
      into.resize(differentiable_.size());
      merge(into, from);
    };
    for (size_t i = 0; i < differentiable_.size(); ++i) {
      Dependence only(differentiable_.size());
      only[i] = true;
      merge_into(of_values[differentiable_[i]], only);
      merge_into(of_memory[&base_of_memory(*differentiable_[i])], only);
    }
    reached_.resize(nodes_.size(), Dependence(differentiable_.size()));
    for (size_t i = nodes_.size(); i-- > 0;) {
      const Node& node = *nodes_[i];
      Dependence& reached = reached_[i];
      for (const Value* output : node.outputs()) {
        merge_into(reached, of_values.try_emplace(output, differentiable_.size()).first->second);
      }
      for (size_t k = 0; k < node.inputs().size(); ++k) {
        const Value& base = base_of_memory(*node.input(k));
        if (may_write_operand(node, k)) {
          merge_into(reached, of_memory.try_emplace(&base, differentiable_.size()).first->second);
        }
      }
      for (const Value* operand : node.inputs()) {
        merge_into(of_values[operand], reached);
        if (const Value& base = base_of_memory(*operand); written_.contains(&base)) {
          merge_into(of_memory[&base], reached);
        }
      }
    }
  }

  // Returns whether forward needs the node, by position. LibTorch's in-place operators clone what only backward reads.
  std::vector<bool> find_needed() const {
    std::vector<bool> is_needed(nodes_.size());
    for (size_t i = nodes_.size(); i-- > 0;) {
      const auto is_read = [&](const Value* output) {
        return is_returned(*output) || std::ranges::any_of(output->uses(), [&](const auto& use) {
                 const auto user = positions_.find(use.user);
                 return user == positions_.end() || is_needed[user->second];
               });
      };
      is_needed[i] = has_effects(*nodes_[i]) || std::ranges::any_of(nodes_[i]->outputs(), is_read);
    }
    return is_needed;
  }

  // Nodes that lead to the same results are a part. The last one leads to none: metrics, numbers, statistics.
  void number_parts() {
    std::map<Dependence, size_t> numbers;
    std::vector<size_t> last;
    const std::vector<bool> is_needed = find_needed();
    part_of_.resize(nodes_.size(), kNone);
    for (size_t i = 0; i < nodes_.size(); ++i) {
      if (is_made_again(*nodes_[i]) || !is_needed[i]) {
        continue;
      }
      if (!any(reached_[i])) {
        last.push_back(i);
        continue;
      }
      const auto [found, is_new] = numbers.emplace(reached_[i], parts_.size());
      if (is_new) {
        parts_.emplace_back();
      }
      part_of_[i] = found->second;
      parts_[found->second].push_back(i);
    }
    for (const size_t node : last) {
      part_of_[node] = parts_.size();
    }
    parts_.push_back(std::move(last));
  }

  // Calls `visit` with the parts that make what the value is, or is made again of.
  template <typename Visit>
  void for_each_source(const Value& value, const Visit& visit) const {
    const auto found = positions_.find(value.node());
    if (found == positions_.end()) {
      return;
    }
    if (part_of_[found->second] != kNone) {
      visit(part_of_[found->second]);
      return;
    }
    for (const Value* operand : value.node()->inputs()) {
      for_each_source(*operand, visit);
    }
  }

  // Returns the parts so that each comes after those whose values it reads, and so that writes and random numbers stay in
  // the program's order. Leaves out parts where there is none.
  std::vector<size_t> order_of_parts() const {
    std::vector<std::set<size_t>> before(parts_.size());
    const auto add = [&before](size_t first, size_t second) {
      if (first != kNone && second != kNone && first != second) {
        before[second].insert(first);
      }
    };
    size_t last_draw = kNone;
    std::unordered_map<const Value*, std::vector<size_t>> readers;  // since the last write
    std::unordered_map<const Value*, size_t> last_write;
    for (size_t i = 0; i < nodes_.size(); ++i) {
      const Node& node = *nodes_[i];
      const size_t part = part_of_[i];
      if (effects_of(node).random) {
        add(last_draw, part);
        last_draw = part;
      }
      for (size_t k = 0; k < node.inputs().size(); ++k) {
        for_each_source(*node.input(k), [&](size_t source) { add(source, part); });
        const Value* base = &base_of_memory(*node.input(k));
        if (!written_.contains(base)) {
          continue;
        }
        if (const auto write = last_write.find(base); write != last_write.end()) {
          add(write->second, part);
        }
        if (!may_write_operand(node, k)) {
          readers[base].push_back(part);
          continue;
        }
        for (const size_t reader : readers[base]) {
          add(reader, part);
        }
        readers[base].clear();
        last_write[base] = part;
      }
    }
    std::vector<size_t> order;
    std::vector<bool> is_placed(parts_.size());
    for (bool has_placed = true; has_placed;) {
      has_placed = false;
      for (size_t part = 0; part < parts_.size() && !has_placed; ++part) {
        has_placed = !is_placed[part] && std::ranges::all_of(before[part], [&](size_t first) { return is_placed[first]; });
        if (has_placed) {
          is_placed[part] = true;
          order.push_back(part);
        }
      }
    }
    return order;
  }

  Expected<std::vector<ResultPart>> make_parts(const std::vector<size_t>& order) {
    // A part returns what later parts read, so all operands are collected before any graph is made.
    std::vector<std::vector<size_t>> nodes(parts_.size());  // of each part, with those made again, in program order
    std::vector<std::vector<const Value*>> operands(parts_.size());
    std::unordered_set<const Value*> crossing;
    for (const size_t part : order) {
      std::set<size_t> all;
      std::unordered_set<const Value*> seen;
      for (const size_t node : parts_[part]) {
        add_node(node, part, all, seen, operands[part]);
      }
      nodes[part].assign(all.begin(), all.end());
      crossing.insert(operands[part].begin(), operands[part].end());
    }
    std::vector<ResultPart> made;
    for (const size_t part : order) {
      made.push_back(make_part(nodes[part], operands[part], crossing, part));
      for (const Value* operand : made.back().operands) {
        if (operand->type()->kind() != c10::TypeKind::TensorType) {
          return Refusal::because("a list is read by what several of its results are computed from");
        }
      }
    }
    return made;
  }

  // Adds a node to what a part runs, with the nodes before it that the part runs again, and what it takes as an operand.
  void add_node(size_t node, size_t part, std::set<size_t>& all, std::unordered_set<const Value*>& seen,
                std::vector<const Value*>& operands) const {
    if (!all.insert(node).second) {
      return;
    }
    for (const Value* operand : nodes_[node]->inputs()) {
      const auto maker = positions_.find(operand->node());
      if (operand->constant() != nullptr) {
        continue;
      }
      if (maker == positions_.end()) {  // an input
        if (operand->offset() >= shared_ && seen.insert(operand).second) {
          operands.push_back(operand);
        }
        continue;
      }
      const size_t source = part_of_[maker->second];
      if (source == part || source == kNone) {
        add_node(maker->second, part, all, seen, operands);
      } else if (seen.insert(operand).second) {
        operands.push_back(operand);
      }
    }
  }

  // Returns whether later parts take a copy of the value: a view, which may have gaps, of memory that is written in its own
  // part alone. LibTorch's LSTM cell writes its gates, parts of one tensor, in place.
  bool is_handed_on_as_copy(const Value& value, size_t part) const {
    if (is_returned(value) || value.type()->kind() != c10::TypeKind::TensorType || !is_cheap_view(*value.node())) {
      return false;
    }
    const Value& base = base_of_memory(value);
    for (size_t i = 0; i < nodes_.size(); ++i) {
      for (size_t k = 0; k < nodes_[i]->inputs().size() && part_of_[i] != part; ++k) {
        if (may_write_operand(*nodes_[i], k) && &base_of_memory(*nodes_[i]->input(k)) == &base) {
          return false;
        }
      }
    }
    return true;
  }

  ResultPart make_part(const std::vector<size_t>& nodes, std::vector<const Value*> operands,
                       const std::unordered_set<const Value*>& crossing, size_t part) const {
    ResultPart made;
    made.operands = std::move(operands);
    std::ranges::stable_partition(made.operands,
                                  [this](const Value* operand) { return positions_.contains(operand->node()); });
    GraphCopy copy;
    for (const Value* input : forward_.inputs().slice(0, shared_)) {
      copy.add_input(*input);
    }
    for (const Value* operand : made.operands) {
      copy.add_input(*operand);
    }
    for (const size_t node : nodes) {
      copy.add_node(*nodes_[node]);
    }
    for (const size_t node : nodes) {
      for (const Value* output : nodes_[node]->outputs()) {
        if (part_of_[node] == part && (crossing.contains(output) || is_returned(*output))) {
          if (is_handed_on_as_copy(*output, part)) {
            copy.add_cloned_output(*output);
          } else {
            copy.add_output(*output);
          }
          made.outputs.push_back(output);
        }
      }
    }
    made.graph = copy.take();
    return made;
  }

  static constexpr size_t kNone = SIZE_MAX;

  const Graph& forward_;
  const size_t shared_;
  const std::vector<const Value*>& returned_;
  const std::vector<const Value*>& differentiable_;
  std::vector<const Node*> nodes_;  // without constants
  std::unordered_map<const Node*, size_t> positions_;
  std::unordered_set<const Value*> written_;  // bases of memory
  std::vector<Dependence> reached_;           // per node: differentiable results
  std::vector<size_t> part_of_;               // per node
  std::vector<std::vector<size_t>> parts_;    // positions of nodes
};

}  // namespace

Expected<std::vector<ResultPart>> split_at_results(const Graph& forward, size_t shared,
                                                   const std::vector<const Value*>& returned,
                                                   const std::vector<const Value*>& differentiable) {
  return ResultSplitter(forward, shared, returned, differentiable).run();
}

}  // namespace sconce
