#include "passes/matmul/join_summed_products.h"

#include "analysis/memory/memory_writes.h"
#include "ir/constant_operands.h"
#include "passes/insert_node.h"
#include "passes/layout/permutations.h"
#include "passes/matmul/known_matrices.h"

#include <algorithm>
#include <map>
#include <unordered_map>
#include <utility>
#include <vector>

namespace sconce {
namespace {

constexpr size_t kMinParts = 4;
constexpr int64_t kMaxSummedRows = 64;  // of a matrix that is summed: more are read faster where they are

using Sizes = std::vector<int64_t>;
using Values = std::vector<Value*>;

// Returns the sizes of a tensor whose dtype, device and sizes are known; empty if they are not.
Sizes sizes_of(const Value& value) {
  Sizes sizes;
  const auto facts = known_tensor(value);
  for (const Dim& dim : facts ? *facts->sizes : std::vector<Dim>()) {
    if (!dim.is_known()) {
      return {};
    }
    sizes.push_back(dim.value());
  }
  return sizes;
}

bool is_used_once(const Value& value) { return value.uses().size() == 1; }

bool is_known_sum(const Node& node) {
  return node.kind() == aten::add && node.inputs().size() == 3 && is_tensor(*node.input(0)) && is_tensor(*node.input(1)) &&
         is_constant_int(*node.input(2), 1) && !sizes_of(*node.output()).empty();
}

// Returns whether the node adds, with others, to a larger sum of tensors of the same form.
bool is_within(const Node& sum, const Node& larger) {
  return is_known_sum(sum) && is_known_sum(larger) && is_used_once(*sum.output()) &&
         sum.owning_block() == larger.owning_block() && sizes_of(*sum.output()) == sizes_of(*larger.output()) &&
         is_alike(*known_tensor(*sum.output()), *known_tensor(*larger.output()));
}

// Returns what a sum adds up, in its order.
Values terms_of(const Node& sum) {
  Values parts;
  Values left{sum.input(1), sum.input(0)};
  while (!left.empty()) {
    Value* part = left.back();
    left.pop_back();
    if (is_within(*part->node(), sum)) {
      left.push_back(part->node()->input(1));
      left.push_back(part->node()->input(0));
    } else {
      parts.push_back(part);
    }
  }
  return parts;
}

// mm(t(rows), columns), transposed or not; or the sum of `rows` over their first dim if there are no columns.
struct SummedPart {
  Value* rows;
  Value* columns;
  bool is_transposed;
  Node* node;  // which reads the matrices
};

std::optional<SummedPart> summed_part(const Value& value) {
  const Value* made = &value;
  bool is_transposed = false;
  while (is_used_once(*made) && permutes(*made->node())) {
    const Value* same = permuted_back(*made->node());
    if (same == nullptr && made->node()->kind() != aten::t) {
      return std::nullopt;
    }
    is_transposed = is_transposed != (same == nullptr);
    made = same != nullptr ? same : made->node()->input(0);
  }
  if (!is_used_once(*made)) {
    return std::nullopt;
  }
  Node* node = made->node();
  if (node->kind() == aten::mm && node->input(0)->node()->kind() == aten::t) {
    return SummedPart{node->input(0)->node()->input(0), node->input(1), is_transposed, node};
  }
  // Sums that keep their first dim are views without it.
  node = node->kind() == aten::view && sizes_of(value).size() == 1 ? node->input(0)->node() : node;
  if (is_transposed || node->kind() != aten::sum || node->inputs().size() != 4 || !is_used_once(*node->output())) {
    return std::nullopt;
  }
  const c10::IValue* dims = node->input(1)->constant();
  const bool over_rows = dims != nullptr && dims->isIntList() && dims->toIntVector() == Sizes{0} && is_none(*node->input(3));
  return over_rows ? std::optional(SummedPart{node->input(0), nullptr, false, node}) : std::nullopt;
}

class Joining {
 public:
  explicit Joining(Graph& graph) : graph_(graph), aliases_(graph), writes_(graph, aliases_) {}

  bool run(const Block& block) {
    bool changed = false;
    std::vector<Node*> sums;
    for (Node* node : block.nodes()) {
      for (const Block* nested : node->blocks()) {
        changed |= run(*nested);
      }
      if (is_known_sum(*node) && node->output()->has_uses() && !is_within(*node, *node->output()->uses()[0].user)) {
        sums.push_back(node);
      }
    }
    for (Node* sum : sums) {
      changed |= join(*sum);
    }
    return changed;
  }

 private:
  bool join(Node& sum) {
    std::map<std::pair<bool, bool>, std::vector<SummedPart>> groups;  // by whether they are products, and transposed
    Values others;
    for (Value* value : terms_of(sum)) {
      const auto part = summed_part(*value);
      if (part && sizes_of(*value) == sizes_of(*sum.output()) && may_join(*part, sum)) {
        groups[{part->columns != nullptr, part->is_transposed}].push_back(*part);
        values_[part->node] = value;
      } else {
        others.push_back(value);
      }
    }
    Values terms;
    for (const auto& [form, parts] : groups) {
      if (parts.size() >= kMinParts) {
        terms.push_back(joined(parts, sum));
      } else {
        std::transform(parts.begin(), parts.end(), std::back_inserter(others),
                       [this](const SummedPart& part) { return values_.at(part.node); });
      }
    }
    if (terms.empty()) {
      return false;
    }
    terms.insert(terms.end(), others.begin(), others.end());
    Value* total = terms.front();
    for (size_t i = 1; i < terms.size(); ++i) {
      total = insert_operator(aten::add, {total, terms[i], sum.input(2)}, sum, without_strides(*sum.output()));
    }
    sum.output()->replace_all_uses_with(total);
    return true;
  }

  static TensorFacts without_strides(const Value& value) {
    TensorFacts facts = *known_tensor(value);
    facts.forget_strides();
    return facts;
  }

  // Returns whether the matrices may be read where the sum stands, and are small.
  bool may_join(const SummedPart& part, const Node& sum) const {
    const Sizes rows = sizes_of(*part.rows);
    const Sizes columns = part.columns != nullptr ? sizes_of(*part.columns) : Sizes{0, 0};
    const auto total = *known_tensor(*sum.output());
    if (part.node->owning_block() != sum.owning_block() || rows.size() != 2 || columns.size() != 2 ||
        !adds_in_any_order(*total.dtype) || !is_alike(*known_tensor(*part.rows), total) ||
        (part.columns != nullptr && (!is_alike(*known_tensor(*part.columns), total) || columns[0] != rows[0]))) {
      return false;
    }
    const int64_t made = part.columns != nullptr ? rows[1] * columns[1] : rows[1];
    const int64_t joined = rows[0] * (rows[1] + columns[1]);
    const int64_t limit = part.columns != nullptr ? made : kMaxSummedRows * made;
    return joined <= limit && !writes_.may_be_written_between(*part.rows, *part.node, sum) &&
           (part.columns == nullptr || !writes_.may_be_written_between(*part.columns, *part.node, sum)) &&
           !writes_.state_may_change_between(*part.node, sum);
  }

  Value* joined(const std::vector<SummedPart>& parts, Node& position) {
    Values rows;
    Values columns;
    for (const SummedPart& part : parts) {
      rows.push_back(part.rows);
      columns.push_back(part.columns);
    }
    Value* below = under_each_other(rows, position);
    if (columns.front() != nullptr) {
      Value* across = insert_operator(aten::t, {below}, position);
      Value* product = insert_operator(aten::mm, {across, under_each_other(columns, position)}, position,
                                       matrix(*below, sizes_of(*below)[1], sizes_of(*columns.front())[1]));
      return parts.front().is_transposed ? insert_operator(aten::t, {product}, position) : product;
    }
    Value* const dims = graph_.insert_constant(Sizes{0}, &position);
    Value* const keeps_dim = graph_.insert_constant(sizes_of(*position.output()).size() == 2, &position);
    return insert_operator(aten::sum, {below, dims, keeps_dim, graph_.insert_constant(c10::IValue(), &position)}, position,
                           without_strides(*position.output()));
  }

  // Returns the same tensor for the same matrices. Sums are joined in the order of the block.
  Value* under_each_other(const Values& matrices, Node& position) {
    const auto made = std::find_if(made_.begin(), made_.end(), [&](const auto& each) {
      return each.first == matrices && each.second->node()->owning_block() == position.owning_block();
    });
    if (made != made_.end()) {
      return made->second;
    }
    int64_t count = 0;
    for (const Value* each : matrices) {
      count += sizes_of(*each)[0];
    }
    Value* list = insert_list(matrices, c10::TensorType::get(), position);
    Value* joined = insert_operator(aten::cat, {list, graph_.insert_constant(0, &position)}, position,
                                    matrix(*matrices.front(), count, sizes_of(*matrices.front())[1]));
    made_.emplace_back(matrices, joined);
    return joined;
  }

  static TensorFacts matrix(const Value& like, int64_t rows, int64_t columns) {
    TensorFacts facts = without_strides(like);
    facts.sizes = {Dim::known(rows), Dim::known(columns)};
    facts.strides = {Dim::known(columns), Dim::known(1)};
    return facts;
  }

  Graph& graph_;
  const AliasSets aliases_;
  const MemoryWrites writes_;
  std::unordered_map<const Node*, Value*> values_;  // by the node of a part
  std::vector<std::pair<Values, Value*>> made_;
};

// Analyses take longer than this.
bool has_candidates(const Graph& graph) {
  size_t candidates = 0;
  for_each_node(graph.body(), [&](const Node* node) {
    for (size_t i = 0; is_known_sum(*node) && i < 2; ++i) {
      candidates += summed_part(*node->input(i)) ? 1 : 0;
    }
  });
  return candidates >= kMinParts;
}

}  // namespace

bool join_summed_products(Graph& graph) { return has_candidates(graph) && Joining(graph).run(graph.body()); }

}  // namespace sconce
