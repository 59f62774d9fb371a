#include "passes/matmul/batch_matmul.h"

#include "analysis/effects.h"
#include "analysis/matrix_products.h"
#include "analysis/memory/escapes.h"
#include "analysis/memory/memory_writes.h"
#include "passes/insert_node.h"
#include "passes/matmul/known_matrices.h"
#include "passes/matmul/product_cost.h"
#include "passes/simplify/check_inplace.h"

#include <ATen/ATen.h>
#include <ATen/autocast_mode.h>
#include <c10/core/InferenceMode.h>

#include <algorithm>
#include <unordered_map>
#include <vector>

namespace sconce {
namespace {

// The limit for a constant that is joined from others and kept with the plan.
constexpr size_t kMaxBytes = size_t{64} << 20;
// Above this, operators take a contiguous tensor for a channels-last one.
constexpr size_t kMaxRank = 3;

class ProductJoiner {
 public:
  ProductJoiner(Graph& graph, BatchWhere where)
      : graph_(graph), where_(where), constants_(graph), aliases_(graph), order_(graph, aliases_) {}

  // Sums first: a product that is batched otherwise is no longer a term of a sum.
  bool run(const Block& block) {
    bool changed = false;
    std::vector<Node*> sums;
    for (Node* node : block.nodes()) {
      for (const Block* nested : node->blocks()) {
        changed |= run(*nested);
      }
      if (is_plain_sum(*node)) {
        sums.push_back(node);
      }
    }
    // Backward, so that a whole sum comes before its parts.
    for (auto sum = sums.rbegin(); sum != sums.rend(); ++sum) {
      changed = (!(*sum)->is_erased() && add_at_once(**sum)) || changed;
    }
    for (const Side shared : {Side::kLeft, Side::kRight}) {
      for (const std::vector<Node*>& group : products_by_operand(block, shared)) {
        for (size_t i = 0; i + 1 < group.size(); ++i) {
          changed = join(c10::ArrayRef<Node*>(group).slice(i), shared) || changed;
        }
      }
    }
    return changed;
  }

 private:
  // Returns whether the analyses know the value, because it was not made in this iteration.
  bool is_covered(const Value& value) const { return value.node()->kind() == prim::Param || order_.covers(*value.node()); }

  std::optional<Product> covered_product(Node& node) const {
    const auto& inputs = node.inputs();
    const bool is_old = !node.is_erased() && order_.covers(node) &&
                        std::all_of(inputs.begin(), inputs.end(), [&](const Value* input) { return is_covered(*input); });
    return is_old ? known_product(node, constants_) : std::nullopt;
  }

  // ---- sums -----------------------------------------------------------------------------------------------------------

  struct Sum {
    Products terms;
    std::vector<Value*> others;
    std::vector<Node*> nodes;  // nodes that become dead: the sums and the products, users before operands
  };

  bool add_at_once(Node& root) {
    Sum sum;
    collect(root, root, sum);
    if (sum.terms.size() < 2 || !may_add_at_once(root, sum) ||
        (where_ == BatchWhere::kProfitable && !pays_to_add_at_once(sum.terms))) {
      return false;
    }
    const Product& first = sum.terms.front();
    Value* left = join_operands(sum.terms, Side::kLeft, 1, root);
    Value* right = join_operands(sum.terms, Side::kRight, 0, root);
    const TensorFacts result_facts = product_facts(first.left_facts, first.columns());
    Value* result = insert_operator(aten::mm, {left, right}, root, result_facts);
    for (Value* other : sum.others) {
      result = insert_operator(aten::add, {result, other, graph_.insert_constant(int64_t{1}, &root)}, root, result_facts);
    }
    take_place_of(*root.output(), *result);
    for (Node* node : sum.nodes) {
      node->erase();
    }
    return true;
  }

  // Collects the terms that are summed in one block by nodes whose results have no other use.
  void collect(Node& add, const Node& root, Sum& sum) const {
    sum.nodes.push_back(&add);
    for (Value* operand : {add.input(0), add.input(1)}) {
      Node& node = *operand->node();
      const bool is_own = operand->uses().size() == 1 && node.owning_block() == root.owning_block() && order_.covers(node);
      if (is_own && is_plain_sum(node)) {
        collect(node, root, sum);
      } else if (auto product = is_own ? covered_product(node) : std::nullopt) {
        sum.terms.push_back(std::move(*product));
        sum.nodes.push_back(&node);
      } else {
        sum.others.push_back(operand);
      }
    }
  }

  bool may_add_at_once(const Node& root, const Sum& sum) const {
    const Product& first = sum.terms.front();
    const Dim rows = first.left_facts.sizes->front();
    const TensorFacts result = product_facts(first.left_facts, first.columns());
    const bool terms_fit = std::all_of(sum.terms.begin(), sum.terms.end(), [&](const Product& term) {
      return term.left_facts.sizes->size() == 2 && is_same(term.left_facts.sizes->front(), rows) &&
             is_same(term.columns(), first.columns()) && is_same(term.left_facts.sizes->back(), term.inner()) &&
             is_alike(term.left_facts, first.left_facts) && has_no_gradient(term.left_facts) &&
             has_no_gradient(term.right_facts);
    });
    return terms_fit && adds_in_any_order(*first.left_facts.dtype) &&
           std::all_of(sum.others.begin(), sum.others.end(),
                       [&](const Value* other) {
                         const auto facts = known_tensor(*other);
                         return is_covered(*other) && facts && leaves_as_is(*facts, result);
                       }) &&
           std::all_of(sum.nodes.begin(), sum.nodes.end(), [&](const Node* node) { return may_move(*node, root); });
  }

  // Returns whether the node would read the same values at a later place.
  bool may_move(const Node& node, const Node& to) const {
    return &node == &to || (!order_.state_may_change_between(node, to) &&
                            std::none_of(node.inputs().begin(), node.inputs().end(), [&](const Value* input) {
                              return order_.may_be_written_between(*input, node, to);
                            }));
  }

  // ---- products that share an operand ---------------------------------------------------------------------------------

  // Groups products by their operand on that side, in order.
  static std::vector<std::vector<Node*>> products_by_operand(const Block& block, Side side) {
    std::vector<std::vector<Node*>> groups;
    std::unordered_map<const Value*, size_t> numbers;
    for (Node* node : block.nodes()) {
      if (const auto product = matrix_product(*node)) {
        const Value* operand = node->input(side == Side::kLeft ? product->left : product->right);
        const auto [number, is_new] = numbers.try_emplace(operand, groups.size());
        if (is_new) {
          groups.emplace_back();
        }
        groups[number->second].push_back(node);
      }
    }
    return groups;
  }

  // Joins the first of `nodes` and those after it that can be computed together with it.
  bool join(c10::ArrayRef<Node*> nodes, Side shared) {
    Products members;
    for (Node* node : nodes) {
      auto next = covered_product(*node);
      if (next && (where_ == BatchWhere::kLegal || is_profitable_to_join(*next, shared)) && may_be_part(*next, shared) &&
          (members.empty() || (fits(*next, members.front(), shared) && may_run_with(*next, members.front(), shared)))) {
        members.push_back(std::move(*next));
      }
      if (members.empty()) {
        return false;
      }
    }
    if (members.size() < 2 || !are_known_pieces(members, shared)) {
      return false;
    }
    put_together(members, shared);
    return true;
  }

  // Returns whether dtype, device and sizes are those of the first, except for the size along which they are joined.
  static bool fits(const Product& next, const Product& first, Side shared) {
    if (shared == Side::kLeft) {
      return next.left == first.left && is_same(next.inner(), first.inner()) &&
             is_alike(next.right_facts, first.right_facts);
    }
    const auto& sizes = *next.left_facts.sizes;
    const auto& others = *first.left_facts.sizes;
    return next.right == first.right && is_alike(next.left_facts, first.left_facts) && sizes.size() == others.size() &&
           std::equal(sizes.begin() + 1, sizes.end(), others.begin() + 1, is_same);
  }

  // Returns whether replacing the result by a part of a larger tensor is unobservable.
  bool may_be_part(const Product& product, Side shared) const {
    const Value& result = *product.node->output();
    const TensorFacts& joined = shared == Side::kLeft ? product.right_facts : product.left_facts;
    const TensorFacts& common = shared == Side::kLeft ? product.left_facts : product.right_facts;
    const bool is_kept_safely = has_no_gradient(common) || (shared == Side::kLeft && product.fixed_right);
    const bool may_be_apart =
        shared == Side::kRight || (product.left_facts.sizes->size() <= kMaxRank && product.columns().is_known() &&
                                   product.columns().value() > 1 && may_have_rows_apart(result));
    return has_no_gradient(joined) && is_kept_safely && !aliases_.may_be_written(result) && is_read_only_and_local(result) &&
           may_be_apart;
  }

  // Returns whether `next` may run at the place of the first.
  bool may_run_with(const Product& next, const Product& first, Side shared) const {
    const Value& operand = shared == Side::kLeft ? *next.right : *next.left;
    return !order_.state_may_change_between(*first.node, *next.node) && exists_at(operand, *first.node) &&
           std::none_of(next.node->inputs().begin(), next.node->inputs().end(),
                        [&](const Value* input) { return order_.may_be_written_between(*input, *first.node, *next.node); });
  }

  // Returns whether the value exists at that place or can be made there: a constant, or a view of an existing value.
  bool exists_at(const Value& value, const Node& position) const {
    const Node& node = *value.node();
    if (node.kind() == prim::Param || node.owning_block() != position.owning_block()) {
      return true;
    }
    return is_covered(value) && (order_.is_after(position, node) || node.kind() == prim::Constant ||
                                 (is_transposition(node) && exists_at(*node.input(0), position)));
  }

  Value* value_at(Value* value, Node& position) {
    Node& node = *value->node();
    if (node.kind() == prim::Param || node.owning_block() != position.owning_block() || order_.is_after(position, node)) {
      return value;
    }
    // Copies a constant, or a view of an existing value, to the position.
    ValueMap values;
    for (Value* input : node.inputs()) {
      values[input] = value_at(input, position);
    }
    return graph_.copy_node(node, &position, values)->output();
  }

  // Returns whether all pieces have one size, which may be symbolic, or all have known sizes.
  static bool are_known_pieces(const Products& members, Side shared) {
    const Dim first = size_of_piece(members.front(), shared);
    const auto all = [&](const auto& holds) {
      return std::all_of(members.begin(), members.end(),
                         [&](const Product& member) { return holds(size_of_piece(member, shared)); });
    };
    return all([&](const Dim& size) { return is_same(size, first); }) ||
           all([](const Dim& size) { return size.is_known(); });
  }

  static Dim size_of_piece(const Product& member, Side shared) {
    return shared == Side::kLeft ? member.columns() : member.left_facts.sizes->front();
  }

  void put_together(const Products& members, Side shared) {
    const Product& first = members.front();
    Node& position = *first.node;
    const bool joins_columns = shared == Side::kLeft;
    const auto rank = static_cast<int64_t>(first.left_facts.sizes->size());
    Value* joined = join_operands(members, joins_columns ? Side::kRight : Side::kLeft, joins_columns ? 1 : 0, position);
    Value* left = joins_columns ? first.left : joined;
    Value* right = joins_columns ? joined : first.right;
    Value* all = insert_operator(position.kind(), {left, right}, position);
    const std::vector<Value*> pieces = cut(*all, members, shared, joins_columns ? rank - 1 : 0, position);
    for (size_t i = 0; i < members.size(); ++i) {
      take_place_of(*members[i].node->output(), *pieces[i]);
    }
    for (const Product& member : members) {
      member.node->erase();
    }
  }

  std::vector<Value*> cut(Value& all, const Products& members, Side shared, int64_t dim, Node& position) {
    const Dim first = size_of_piece(members.front(), shared);
    const bool are_equal = std::all_of(members.begin(), members.end(),
                                       [&](const Product& member) { return size_of_piece(member, shared) == first; });
    Value* along = graph_.insert_constant(dim, &position);
    Node* cut = nullptr;
    if (are_equal) {
      cut = graph_.create(aten::chunk,
                          {&all, graph_.insert_constant(static_cast<int64_t>(members.size()), &position), along}, 0);
    } else {
      std::vector<Value*> sizes;
      for (const Product& member : members) {
        sizes.push_back(graph_.insert_constant(size_of_piece(member, shared).value(), &position));
      }
      cut = graph_.create(aten::split_with_sizes, {&all, insert_list(sizes, c10::IntType::get(), position), along}, 0);
    }
    cut->add_output(c10::ListType::ofTensors());
    resolve(*cut);
    cut->set_location(position.location())->insert_before(&position);
    Node* unpack = graph_.create(prim::ListUnpack, {cut->output()}, members.size());
    unpack->set_location(position.location())->insert_before(&position);
    return unpack->outputs().vec();
  }

  // ---- nodes ----------------------------------------------------------------------------------------------------------

  Value* join_operands(const Products& members, Side side, int64_t dim, Node& position) {
    if (auto constant = side == Side::kRight ? joined_constants(members, dim) : std::nullopt) {
      Value* joined = graph_.insert_constant(std::move(*constant), &position, c10::TensorType::get());
      joined->node()->set_attribute(folded_attribute(), int64_t{1})->set_location(position.location());
      return joined;
    }
    std::vector<Value*> operands;
    for (const Product& member : members) {
      operands.push_back(value_at(side == Side::kLeft ? member.left : member.right, position));
    }
    Value* list = insert_list(operands, c10::TensorType::get(), position);
    return insert_operator(aten::cat, {list, graph_.insert_constant(dim, &position)}, position);
  }

  // Returns nothing if one of them is not a constant, or if the joined constant would be large.
  static std::optional<at::Tensor> joined_constants(const Products& members, int64_t dim) {
    std::vector<at::Tensor> tensors;
    size_t bytes = 0;
    for (const Product& member : members) {
      if (!member.fixed_right) {
        return std::nullopt;
      }
      bytes += member.fixed_right->nbytes();
      tensors.push_back(*member.fixed_right);
    }
    if (bytes > kMaxBytes) {
      return std::nullopt;
    }
    const c10::InferenceMode normal(false);
    const at::NoGradGuard no_grad;
    const c10::impl::ExcludeDispatchKeyGuard no_autocast(c10::autocast_dispatch_keyset);
    return at::cat(tensors, dim);
  }

  static void take_place_of(Value& old, Value& made) {
    made.set_name(old.name());
    if (old.facts() != nullptr) {
      TensorFacts facts = *old.facts();
      facts.forget_strides();
      made.set_facts(std::move(facts));
    }
    old.replace_all_uses_with(&made);
  }

  Graph& graph_;
  const BatchWhere where_;
  InvariantTensors constants_;
  AliasSets aliases_;
  MemoryWrites order_;
};

}  // namespace

bool batch_matmul(Graph& graph, BatchWhere where) {
  size_t products = 0;
  bool is_open = true;
  for_each_node(graph.body(), [&](Node* node) {
    products += matrix_product(*node) ? 1 : 0;
    // Facts of an operand hold where it was made, unless its sizes change in place.
    is_open = is_open && !node->op().may_change_sizes && node->op().reads != Reads::kStridesOrVersion &&
              !node->op().differentiates;
  });
  bool changed = false;
  // The products made in one iteration are operands in the next.
  while (products > 1 && is_open && ProductJoiner(graph, where).run(graph.body())) {
    changed = true;
  }
  return changed;
}

bool batch_matmul(Graph& graph) { return batch_matmul(graph, BatchWhere::kProfitable); }

}  // namespace sconce
