#include "passes/layout/remove_layout_changes.h"

#include "analysis/effects.h"
#include "analysis/known_layout.h"
#include "analysis/layout_use.h"
#include "analysis/memory/escapes.h"
#include "analysis/memory/lazy_alias_sets.h"
#include "ir/constant_operands.h"
#include "ir/schema_match.h"
#include "passes/layout/permutations.h"

#include <ATen/core/jit_type.h>
#include <c10/core/MemoryFormat.h>

#include <algorithm>
#include <unordered_map>

namespace sconce {
namespace {

bool is_one_of(const Node& node, std::initializer_list<c10::Symbol> kinds) {
  return node.schema() != nullptr && std::find(kinds.begin(), kinds.end(), node.kind()) != kinds.end();
}

// Returns whether the operator changes sizes and keeps the row-major sequence of elements.
bool reshapes(const Node& node) {
  return (is_one_of(node, {aten::view}) && node.named_input("size") != nullptr) || is_one_of(node, {aten::reshape}) ||
         (is_one_of(node, {aten::flatten}) && node.named_input("out_dim") == nullptr);
}

class LayoutChanges {
 public:
  LayoutChanges(Graph& graph, bool keeps_output_views)
      : graph_(graph), aliases_(graph), keeps_output_views_(keeps_output_views) {}

  bool run() {
    return for_each_replaceable_result(graph_, [&](Node& node) { return rewrite(node); });
  }

 private:
  bool rewrite(Node& node) {
    if (Value* same = same_as(node)) {
      node.output()->replace_all_uses_with(same);
      node.erase();
      return true;
    }
    if (permutes(node)) {
      return merge_permutations(node);
    }
    return reshapes(node) ? merge_reshapes(node) : drop_round_trip(node);
  }

  // Returns the value that can replace the node's output; null if none is known.
  Value* same_as(const Node& node) const {
    Value* operand = node.input(0);
    const Node& inner = *operand->node();
    if (permutes(node)) {
      Value* start = permuted_back(node);
      return start != nullptr && (view_is_unobservable(node) || (!keeps_output_views_ && is_only_view(node, *start)))
                 ? start
                 : nullptr;
    }
    if (reshapes(node)) {
      Value* start = reshaped_back(node);
      return start != nullptr && view_is_unobservable(node) ? start : nullptr;
    }
    if (is_one_of(node, {aten::contiguous}) && is_one_of(inner, {aten::contiguous})) {
      return format_of(node) && format_of(node) == format_of(inner) ? operand : nullptr;
    }
    if (is_one_of(node, {aten::to_dense}) && is_one_of(inner, {aten::to_mkldnn})) {
      const TensorFacts* facts = inner.input(0)->facts();
      return keeps_dtype(node) && keeps_dtype(inner) && is_contiguous(facts) && facts->dtype == c10::kFloat &&
                     facts->device && facts->device->is_cpu() && copy_is_unobservable(*inner.input(0), *node.output())
                 ? inner.input(0)
                 : nullptr;
    }
    if (is_one_of(node, {aten::to_mkldnn}) && is_one_of(inner, {aten::to_dense})) {
      const TensorFacts* facts = inner.input(0)->facts();
      return keeps_dtype(node) && keeps_dtype(inner) && facts != nullptr && facts->layout == c10::kMkldnn &&
                     facts->dtype == c10::kFloat && copy_is_unobservable(*inner.input(0), *node.output())
                 ? inner.input(0)
                 : nullptr;
    }
    return nullptr;
  }

  static bool keeps_dtype(const Node& node) {
    const Value* dtype = node.named_input("dtype");
    return dtype == nullptr || is_none(*dtype);
  }

  // ---- observability ------------------------------------------------------------------------------------------------

  bool may_be_written(const Value& value) const {
    const auto found = stands_for_.find(&value);
    return aliases_.get().may_be_written(value) ||
           (found != stands_for_.end() && aliases_.get().may_be_written(*found->second));
  }

  bool view_is_unobservable(const Node& node) const {
    return !may_be_written(*node.output()) && !may_escape(*node.output());
  }

  // Returns whether the view could as well be the tensor that it starts from: a new one, which the graph knows by this view
  // alone.
  bool is_only_view(const Node& node, const Value& start) const {
    const Node& source = *start.node();
    return !may_be_written(*node.output()) && source.schema() != nullptr && !source.schema()->is_mutable() &&
           !source.op().results_may_share_memory && start.uses().size() == 1 && node.input(0)->uses().size() == 1;
  }

  // Autograd may save the source in place of the copy, so code outside must not be able to write it before backward.
  bool copy_is_unobservable(const Value& source, const Value& copy) const {
    return !may_be_written(source) && !may_be_written(copy) && !aliases_.get().is_wildcard(source) && !may_escape(source) &&
           !may_escape(copy);
  }

  // ---- views --------------------------------------------------------------------------------------------------------

  // The inner permutation stays if it has other users.
  bool merge_permutations(Node& node) {
    const auto order = order_of_both(node);
    const Node& inner = *node.input(0)->node();
    const bool is_permute = node.kind() == aten::permute || (order && inner.kind() == aten::permute);
    // Tensors of layouts other than strided can be transposed, but not permuted.
    if (!order || !(is_permute || is_strided(*inner.input(0)))) {
      return false;
    }
    replace(node, aten::permute, *node.input(0)->node()->input(0), {order->begin(), order->end()});
    return true;
  }

  // Only strided tensors have known strides.
  static bool is_strided(const Value& value) {
    return value.facts() != nullptr && (value.facts()->strides || value.facts()->layout == c10::kStrided);
  }

  // Replaces the node by a view of `start`.
  void replace(Node& node, c10::Symbol kind, Value& start, const std::vector<int64_t>& numbers) {
    std::vector<Value*> elements;
    for (const int64_t number : numbers) {
      elements.push_back(graph_.insert_constant(number, &node));
    }
    Node* list = graph_.create(prim::ListConstruct, elements, 0);
    list->add_output(c10::ListType::ofInts());
    list->set_location(node.location())->insert_before(&node);
    Node* made = graph_.create(kind, {&start, list->output()});
    made->set_location(node.location())->insert_before(&node);
    resolve(*made);
    Value& result = *node.output();
    made->output()->set_name(result.name());
    if (result.facts() != nullptr) {
      made->output()->set_facts(*result.facts());
    }
    stands_for_[made->output()] = &result;
    result.replace_all_uses_with(made->output());
    node.erase();
  }

  static std::optional<std::vector<int64_t>> known_sizes(const Value& value) {
    if (value.facts() == nullptr || !value.facts()->sizes) {
      return std::nullopt;
    }
    std::vector<int64_t> sizes;
    for (const Dim& dim : *value.facts()->sizes) {
      if (!dim.is_known()) {
        return std::nullopt;
      }
      sizes.push_back(dim.value());
    }
    return sizes;
  }

  static bool has_sizes_of_contiguous(const Value& value, const Value& other) {
    const auto sizes = known_sizes(value);
    return sizes && is_contiguous(other.facts()) && sizes == known_sizes(other);
  }

  static Value* reshaped_back(const Node& node) {
    Value* operand = node.input(0);
    if (has_sizes_of_contiguous(*node.output(), *operand)) {
      return operand;
    }
    const Node& inner = *operand->node();
    return reshapes(inner) && has_sizes_of_contiguous(*node.output(), *inner.input(0)) ? inner.input(0) : nullptr;
  }

  // Every result is a view of the start, with the strides of a new tensor.
  bool merge_reshapes(Node& node) {
    const Node& inner = *node.input(0)->node();
    if (!reshapes(inner) || !is_contiguous(inner.input(0)->facts())) {
      return false;
    }
    if (node.kind() != aten::flatten) {
      node.set_input(0, inner.input(0));
      return true;
    }
    // The operator's dimensions refer to the inner result. It returns its operand itself if there are none to join.
    const auto sizes = known_sizes(*node.output());
    const auto inner_sizes = known_sizes(*inner.output());
    if (!sizes || !inner_sizes || sizes->size() == inner_sizes->size()) {
      return false;
    }
    replace(node, aten::view, *inner.input(0), *sizes);
    return true;
  }

  // ---- copies -------------------------------------------------------------------------------------------------------

  static std::optional<c10::MemoryFormat> format_of(const Node& node) {
    const Value* format = is_one_of(node, {aten::contiguous, aten::clone}) ? node.named_input("memory_format") : nullptr;
    const auto* constant = format == nullptr ? nullptr : format->constant();
    return constant && constant->isInt() ? std::optional(static_cast<c10::MemoryFormat>(constant->toInt())) : std::nullopt;
  }

  //   %c = aten::contiguous(%x, %other)
  //   %d = aten::relu(%c)                 →   %d = aten::relu(%x)
  //   %e = aten::contiguous(%d, %format)      where x has that format
  bool drop_round_trip(Node& node) {
    const auto format = format_of(node);
    if (!format) {
      return false;
    }
    Node* first = nullptr;  // the first node in between
    Node* at = node.input(0)->node();
    while (at->schema() != nullptr && is_pointwise_of_one(*at) && produces_new_tensor(*at) &&
           at->output()->uses().size() == 1 && at->owning_block() == node.owning_block()) {
      first = at;
      at = at->input(0)->node();
    }
    // A clone in a format may differ from `contiguous`: for a tensor that fits both formats, `contiguous` copies
    // nothing.
    if (!is_one_of(*at, {aten::contiguous}) || !format_of(*at) || !has_layout(at->input(0)->facts(), *format)) {
      return false;
    }
    Value& start = *at->input(0);
    if (first == nullptr) {
      if (!copy_is_unobservable(start, *node.output())) {
        return false;
      }
      node.output()->replace_all_uses_with(&start);
      node.erase();
      return true;
    }
    Value& last = *node.input(0);
    const bool is_told = may_be_written(*node.output()) || may_escape(*node.output());
    if (!copy_is_unobservable(start, *at->output()) || (is_told && !last.node()->op().backward_ignores_result)) {
      return false;
    }
    for (Node* each = first; each != nullptr; each = each == last.node() ? nullptr : each->output()->uses()[0].user) {
      forget_strides(*each->output());
    }
    first->set_input(0, &start);
    if (node.output()->facts() != nullptr) {
      last.set_facts(*node.output()->facts());
    }
    stands_for_[&last] = node.output();
    node.output()->replace_all_uses_with(&last);
    node.erase();
    return true;
  }

  static void forget_strides(Value& value) {
    if (value.facts() != nullptr) {
      TensorFacts facts = *value.facts();
      facts.forget_strides();
      value.set_facts(std::move(facts));
    }
  }

  Graph& graph_;
  LazyAliasSets aliases_;
  const bool keeps_output_views_;  // results that are views stay views, which the caller can tell
  std::unordered_map<const Value*, const Value*> stands_for_;  // replaced value → the value that replaced it
};

}  // namespace

bool remove_layout_changes(Graph& graph) { return LayoutChanges(graph, /*keeps_output_views=*/true).run(); }

bool remove_layout_changes_of_outputs(Graph& graph) { return LayoutChanges(graph, /*keeps_output_views=*/false).run(); }

}  // namespace sconce
