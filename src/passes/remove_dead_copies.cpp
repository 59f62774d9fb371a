#include "passes/remove_dead_copies.h"

#include "ir/effects.h"
#include "ir/escapes.h"
#include "ir/in_place.h"
#include "ir/lazy_alias_sets.h"
#include "ir/list_writes.h"
#include "ir/schema_match.h"
#include "passes/constant_operands.h"
#include "passes/known_layout.h"

#include <ATen/core/jit_type.h>
#include <c10/core/MemoryFormat.h>

#include <algorithm>
#include <numeric>

namespace sconce {
namespace {

using Order = std::vector<size_t>;

bool is_none(const Value& value) { return value.type()->kind() == c10::TypeKind::NoneType; }

bool is_constant_int(const Value& value, int64_t wanted) {
  const auto constant = value.constant();
  return constant && constant->isInt() && constant->toInt() == wanted;
}

// The order of dimensions of a permutation of constants; nothing for other nodes.
std::optional<Order> order_of(const Node& node) {
  Order order;
  if (node.kind() != aten::permute) {
    return std::nullopt;
  }
  const Value& list = *node.input(1);
  if (list.node()->kind() == prim::ListConstruct) {
    const auto uses = list.uses();
    if (!std::all_of(uses.begin(), uses.end(), [](const Use& use) { return only_reads_list(*use.user, use.index); })) {
      return std::nullopt;
    }
    const auto dims = list.node()->inputs();
    for (const Value* dim : dims) {
      const auto index = constant_index(*dim, dims.size());
      if (!index) {
        return std::nullopt;
      }
      order.push_back(*index);
    }
    return order;
  }
  const auto dims = list.constant();
  if (!dims || !dims->isIntList()) {
    return std::nullopt;
  }
  const auto rank = static_cast<int64_t>(dims->toIntVector().size());
  for (const int64_t dim : dims->toIntVector()) {
    order.push_back(static_cast<size_t>(dim + (dim < 0 ? rank : 0)));
  }
  return order;
}

bool is_permutation(const Order& order) {
  Order sorted = order;
  std::sort(sorted.begin(), sorted.end());
  Order identity(order.size());
  std::iota(identity.begin(), identity.end(), 0);
  return sorted == identity;
}

class Removal {
 public:
  explicit Removal(Graph& graph) : graph_(graph), aliases_(graph) {
    for_each_node(graph.body(),
                  [&](Node* node) { blocked_ = blocked_ || may_change_sizes(*node) || differentiates(*node); });
  }

  bool run() {
    bool changed = false;
    if (blocked_) {
      return false;
    }
    for_each_node(graph_.body(), [&](Node* node) {
      if (node->schema() == nullptr || node->outputs().size() != 1 || node->inputs().empty()) {
        return;
      }
      if (Value* same = same_as(*node)) {
        node->output()->replace_all_uses_with(same);
        node->erase();
        changed = true;
      } else {
        changed |= merge_permutations(*node);
      }
    });
    return changed;
  }

 private:
  // What the node's output can be replaced by; null when nothing is known.
  Value* same_as(const Node& node) const {
    Value* operand = node.input(0);
    switch (static_cast<c10::unique_t>(node.kind())) {
      case aten::to: return gives_back_operand(node) ? operand : nullptr;
      case aten::type_as: return has_dtype_and_device_of(*operand, *node.input(1)) ? operand : nullptr;
      case aten::contiguous: return is_contiguous_already(node) ? operand : nullptr;
      case aten::clone: return is_contiguous_already(node) && nobody_tells_copy(node) ? operand : nullptr;
      case aten::detach:
        return operand->facts() != nullptr && operand->facts()->requires_grad == false && nobody_tells_view(node) ? operand
                                                                                                                  : nullptr;
      case aten::transpose: return is_transposed_back(node) && nobody_tells_view(node) ? operand->node()->input(0) : nullptr;
      default: return nullptr;
    }
  }

  // ---- casts --------------------------------------------------------------------------------------------------------

  // LibTorch's `to` returns its operand when it has nothing to do.
  static bool gives_back_operand(const Node& node) {
    const TensorFacts* facts = node.input(0)->facts();
    const Value* copy = node.named_input("copy");
    if (facts == nullptr || copy == nullptr || constant_bool(*copy) != false) {
      return false;
    }
    if (const Value* other = node.named_input("other")) {
      const Value* format = node.named_input("memory_format");
      return has_dtype_and_device_of(*node.input(0), *other) && (format == nullptr || is_none(*format));
    }
    for (const char* name : {"layout", "memory_format", "pin_memory"}) {
      const Value* argument = node.named_input(name);
      if (argument != nullptr && !is_none(*argument)) {
        return false;
      }
    }
    const Value* dtype = node.named_input("dtype");
    const Value* device = node.named_input("device");
    const auto wanted_device = device == nullptr ? std::nullopt : device->constant();
    return (dtype != nullptr || device != nullptr) &&
           (dtype == nullptr || is_none(*dtype) ||
            (facts->dtype && is_constant_int(*dtype, static_cast<int64_t>(*facts->dtype)))) &&
           (device == nullptr || is_none(*device) ||
            (wanted_device && wanted_device->isDevice() && facts->device && wanted_device->toDevice() == *facts->device));
  }

  static bool has_dtype_and_device_of(const Value& value, const Value& other) {
    const TensorFacts* a = value.facts();
    const TensorFacts* b = other.facts();
    // Strides are known of strided tensors only.
    return a != nullptr && b != nullptr && a->dtype && a->dtype == b->dtype && a->device && a->device == b->device &&
           a->strides && b->strides;
  }

  // ---- copies -------------------------------------------------------------------------------------------------------

  static bool is_contiguous_already(const Node& node) {
    const Value* format = node.named_input("memory_format");
    return is_contiguous(node.input(0)->facts()) && format != nullptr &&
           (is_none(*format) || is_constant_int(*format, static_cast<int64_t>(c10::MemoryFormat::Contiguous)) ||
            (node.kind() == aten::clone && is_constant_int(*format, static_cast<int64_t>(c10::MemoryFormat::Preserve))));
  }

  // Backward may keep the source in the place of the copy: nobody outside may write it until then.
  bool nobody_tells_copy(const Node& node) const {
    const Value& source = *node.input(0);
    const Value& copy = *node.output();
    return !aliases_.get().may_be_written(source) && !aliases_.get().may_be_written(copy) &&
           !aliases_.get().is_wildcard(source) && !may_leave(source) && !may_leave(copy);
  }

  // ---- views --------------------------------------------------------------------------------------------------------

  bool nobody_tells_view(const Node& node) const {
    return !aliases_.get().may_be_written(*node.output()) && !may_leave(*node.output());
  }

  static bool is_transposed_back(const Node& node) {
    const Node& inner = *node.input(0)->node();
    return inner.kind() == aten::transpose && inner.schema() == node.schema() &&
           ((are_same(*inner.input(1), *node.input(1)) && are_same(*inner.input(2), *node.input(2))) ||
            (are_same(*inner.input(1), *node.input(2)) && are_same(*inner.input(2), *node.input(1))));
  }

  static bool are_same(const Value& a, const Value& b) {
    const auto constant = a.constant();
    return &a == &b || (constant && constant->isInt() && is_constant_int(b, constant->toInt()));
  }

  // The inner permutation stays for others who use it.
  bool merge_permutations(Node& node) {
    const Node& inner = *node.input(0)->node();
    const auto outer_order = order_of(node);
    const auto inner_order = outer_order ? order_of(inner) : std::nullopt;
    if (!inner_order || inner_order->size() != outer_order->size() || !is_permutation(*outer_order) ||
        !is_permutation(*inner_order)) {
      return false;
    }
    Order order;
    bool is_identity = true;
    for (const size_t dim : *outer_order) {
      order.push_back((*inner_order)[dim]);
      is_identity = is_identity && order.back() == order.size() - 1;
    }
    Value* base = inner.input(0);
    if (is_identity && nobody_tells_view(node)) {
      node.output()->replace_all_uses_with(base);
      node.erase();
      return true;
    }
    std::vector<Value*> dims;
    for (const size_t dim : order) {
      dims.push_back(graph_.insert_constant(static_cast<int64_t>(dim), &node));
    }
    Node* list = graph_.create(prim::ListConstruct, dims, 0);
    list->add_output(c10::ListType::ofInts());
    list->set_location(node.location())->insert_before(&node);
    node.set_input(0, base);
    node.set_input(1, list->output());
    return true;
  }

  Graph& graph_;
  LazyAliasSets aliases_;
  bool blocked_ = false;
};

}  // namespace

bool remove_dead_copies(Graph& graph) { return Removal(graph).run(); }

}  // namespace sconce
