#include "passes/memory/remove_dead_copies.h"

#include "analysis/known_layout.h"
#include "analysis/memory/escapes.h"
#include "analysis/memory/lazy_alias_sets.h"
#include "ir/constant_operands.h"

#include <ATen/core/jit_type.h>
#include <c10/core/MemoryFormat.h>

#include <algorithm>
#include <array>

namespace sconce {
namespace {

class DeadCopies {
 public:
  explicit DeadCopies(Graph& graph) : graph_(graph), aliases_(graph) {}

  bool run() {
    return for_each_replaceable_result(graph_, [&](Node& node) {
      Value* same = same_as(node);
      if (same != nullptr) {
        node.output()->replace_all_uses_with(same);
        node.erase();
      }
      return same != nullptr;
    });
  }

 private:
  // Returns the value that can replace the node's output; null if none is known.
  Value* same_as(const Node& node) const {
    Value* operand = node.input(0);
    switch (static_cast<c10::unique_t>(node.kind())) {
      case aten::to: return returns_operand(node) ? operand : nullptr;
      case aten::type_as: return has_dtype_and_device_of(*operand, *node.input(1)) ? operand : nullptr;
      case aten::contiguous: return has_layout_already(node) ? operand : nullptr;
      case aten::clone: return has_layout_already(node) && copy_is_unobservable(node) ? operand : nullptr;
      case aten::detach:
        return operand->facts() != nullptr && operand->facts()->requires_grad == false && view_is_unobservable(node)
                   ? operand
                   : nullptr;
      default: return nullptr;
    }
  }

  // ---- casts --------------------------------------------------------------------------------------------------------

  // LibTorch's `to` returns its operand when it has nothing to do.
  static bool returns_operand(const Node& node) {
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
    const auto* wanted_device = device == nullptr ? nullptr : device->constant();
    return (dtype != nullptr || device != nullptr) &&
           (dtype == nullptr || is_none(*dtype) ||
            (facts->dtype && is_constant_int(*dtype, static_cast<int64_t>(*facts->dtype)))) &&
           (device == nullptr || is_none(*device) ||
            (wanted_device && wanted_device->isDevice() && facts->device && wanted_device->toDevice() == *facts->device));
  }

  static bool has_dtype_and_device_of(const Value& value, const Value& other) {
    const TensorFacts* a = value.facts();
    const TensorFacts* b = other.facts();
    // Only strided tensors have known strides.
    return a != nullptr && b != nullptr && a->dtype && a->dtype == b->dtype && a->device && a->device == b->device &&
           a->strides && b->strides;
  }

  // ---- copies -------------------------------------------------------------------------------------------------------

  static bool has_layout_already(const Node& node) {
    const Value* format = node.named_input("memory_format");
    const auto is = [&](c10::MemoryFormat wanted) { return is_constant_int(*format, static_cast<int64_t>(wanted)); };
    if (format == nullptr) {
      return false;
    }
    const TensorFacts* facts = node.input(0)->facts();
    const bool keeps = node.kind() == aten::clone && (is_none(*format) || is(c10::MemoryFormat::Preserve));
    constexpr std::array kFormats = {c10::MemoryFormat::Contiguous, c10::MemoryFormat::ChannelsLast,
                                     c10::MemoryFormat::ChannelsLast3d};
    return std::any_of(kFormats.begin(), kFormats.end(),
                       [&](c10::MemoryFormat each) { return (keeps || is(each)) && has_layout(facts, each); });
  }

  // Autograd may save the source in place of the copy, so code outside must not be able to write it before backward.
  bool copy_is_unobservable(const Node& node) const {
    const Value& source = *node.input(0);
    const Value& copy = *node.output();
    return !aliases_.get().may_be_written(source) && !aliases_.get().may_be_written(copy) &&
           !aliases_.get().is_wildcard(source) && !may_escape(source) && !may_escape(copy);
  }

  // ---- views --------------------------------------------------------------------------------------------------------

  bool view_is_unobservable(const Node& node) const {
    return !aliases_.get().may_be_written(*node.output()) && !may_escape(*node.output());
  }

  Graph& graph_;
  LazyAliasSets aliases_;
};

}  // namespace

bool remove_dead_copies(Graph& graph) { return DeadCopies(graph).run(); }

}  // namespace sconce
