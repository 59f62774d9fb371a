#include "passes/simplify/pool_constants.h"

#include "analysis/memory/escapes.h"
#include "analysis/memory/invariant_tensors.h"
#include "analysis/memory/object_identity.h"
#include "ir/text/print_literal.h"

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <cstring>
#include <string>
#include <unordered_map>

namespace sconce {
namespace {

class Pool {
 public:
  explicit Pool(const Graph& graph) : identity_(graph), fixed_(graph) {}

  // Returns the constant that replaces this one: itself if it is the first of its value, null if it must stay.
  Value* pooled(Value& output) {
    const c10::IValue value = *output.constant();
    std::string text = output.type()->annotation_str() + ' ';
    if (value.isTensor()) {
      text += std::to_string(reinterpret_cast<uintptr_t>(value.toTensor().unsafeGetTensorImpl()));
      const auto [same, is_first] = pool_.try_emplace(std::move(text), &output);
      if (is_first && has_fixed_bytes(value.toTensor())) {
        same->second = equal_tensor(output, value.toTensor());
      }
      return same->second;
    }
    if (value.isIntList() || value.isDoubleList() || value.isBoolList()) {
      if (!is_read_only_and_local(output)) {
        return nullptr;
      }
    } else if (value.isString() && identity_.is_observed()) {
      return nullptr;
    } else if (!value.isNone() && !value.isInt() && !value.isDouble() && !value.isBool() && !value.isComplexDouble() &&
               !value.isString() && !value.isDevice()) {
      return nullptr;
    }
    print_constant(text, value, nullptr);
    return pool_.try_emplace(std::move(text), &output).first->second;
  }

 private:
  // Returns whether the tensor is only its elements, and these are the same in all runs.
  bool has_fixed_bytes(const at::Tensor& tensor) const {
    return tensor.defined() && tensor.layout() == c10::kStrided && tensor.is_cpu() &&
           tensor.is_non_overlapping_and_dense() && !tensor.requires_grad() && !tensor.is_quantized() && !tensor.is_conj() &&
           !tensor.is_neg() && !tensor.is_inference() && tensor.nbytes() > 0 && !fixed_.may_change(tensor);
  }

  Value* equal_tensor(Value& output, const at::Tensor& tensor) {
    std::string form = output.type()->annotation_str() + c10::toString(tensor.scalar_type());
    form += tensor.unsafeGetTensorImpl()->is_wrapped_number() ? " number" : "";
    for (const int64_t size : tensor.sizes()) {
      form += ' ' + std::to_string(size);
    }
    std::vector<Value*>& others = tensors_[form];
    for (Value* other : others) {
      const at::Tensor same = other->constant()->toTensor();
      if (same.strides() == tensor.strides() &&
          std::memcmp(same.const_data_ptr(), tensor.const_data_ptr(), tensor.nbytes()) == 0) {
        return other;
      }
    }
    others.push_back(&output);
    return &output;
  }

  LazyIdentity identity_;
  const InvariantTensors fixed_;
  std::unordered_map<std::string, Value*> pool_;                  // by a key that equal constants share
  std::unordered_map<std::string, std::vector<Value*>> tensors_;  // distinct tensors, by dtype and sizes
};

}  // namespace

bool pool_constants(Graph& graph) {
  bool changed = false;
  Pool pool(graph);
  Node* last = nullptr;  // the last of the constants at the top
  for_each_node(graph.body(), [&](Node* node) {
    if (node->kind() != prim::Constant) {
      return;
    }
    Value* const pooled = pool.pooled(*node->output());
    if (pooled == nullptr) {
      return;
    }
    if (pooled != node->output()) {
      node->output()->replace_all_uses_with(pooled);
      node->erase();
      changed = true;
      return;
    }
    Node* const place = last == nullptr ? graph.body().first() : last->next();
    if (place != node) {
      node->detach();
      node->insert_before(place != nullptr ? place : graph.body().return_node());
      changed = true;
    }
    last = node;
  });
  return changed;
}

}  // namespace sconce
