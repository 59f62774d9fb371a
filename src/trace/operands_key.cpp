#include "trace/operands_key.h"

#include "base/storage_of.h"

#include <algorithm>
#include <utility>

namespace sconce {
namespace {

bool has_form(const at::Tensor& tensor, std::span<const int64_t> form) {
  const auto rank = static_cast<size_t>(tensor.dim());
  return form.size() == 2 * rank && std::equal(tensor.sizes().begin(), tensor.sizes().end(), form.begin()) &&
         std::equal(tensor.strides().begin(), tensor.strides().end(), form.begin() + static_cast<std::ptrdiff_t>(rank));
}

bool is_plain(const at::Tensor& tensor) { return tensor.defined() && tensor.layout() == c10::kStrided; }

}  // namespace

OperandsKey::OperandsKey(Tensors arguments, Tensors own) : key_(key_of(arguments, own)) { note(arguments, own); }

TraceKey OperandsKey::key_of(Tensors arguments, Tensors own) {
  std::vector<at::Tensor> all(arguments.begin(), arguments.end());
  all.insert(all.end(), own.begin(), own.end());
  const auto open = static_cast<std::ptrdiff_t>(trace_key_parts(arguments).sizes.size());
  TraceKeyParts key = trace_key_parts(all);
  key.structure.insert(key.structure.end(), key.sizes.begin() + open, key.sizes.end());
  return std::move(key.structure);
}

bool OperandsKey::matches(Tensors arguments, Tensors own) {
  if (are_known(arguments, own)) {
    return true;
  }
  const bool is_same = key_of(arguments, own) == key_;
  if (is_same) {
    note(arguments, own);
  }
  return is_same;
}

void OperandsKey::note(Tensors arguments, Tensors own) {
  own_.clear();
  storages_.clear();
  for (const at::Tensor& tensor : own) {
    if (!is_plain(tensor)) {
      own_.clear();
      return;
    }
    own_.push_back({tensor.unsafeGetTensorImpl(), storage_of(tensor), tensor_kind(tensor), tensor.key_set().raw_repr(),
                    tensor.storage_offset()});
    own_.back().form.append(tensor.sizes().begin(), tensor.sizes().end());
    own_.back().form.append(tensor.strides().begin(), tensor.strides().end());
    storages_.push_back(own_.back().storage);
  }
  std::sort(storages_.begin(), storages_.end());
  arguments_ = trace_key_parts(arguments).structure;
  if (!are_apart(arguments)) {
    own_.clear();
  }
}

bool OperandsKey::are_apart(Tensors arguments) const {
  return std::none_of(arguments.begin(), arguments.end(), [this](const at::Tensor& argument) {
    return std::binary_search(storages_.begin(), storages_.end(), static_cast<const void*>(storage_of(argument)));
  });
}

// The same tensors in the same form have the same part of the key, where no argument shares their memory.
bool OperandsKey::are_known(Tensors arguments, Tensors own) const {
  if (own.empty() || own.size() != own_.size()) {
    return false;
  }
  for (size_t i = 0; i < own.size(); ++i) {
    const at::Tensor& tensor = own[i];
    const Known& known = own_[i];
    if (tensor.unsafeGetTensorImpl() != known.tensor || !is_plain(tensor) || storage_of(tensor) != known.storage ||
        tensor_kind(tensor) != known.kind || tensor.key_set().raw_repr() != known.dispatch ||
        tensor.storage_offset() != known.offset || !has_form(tensor, known.form)) {
      return false;
    }
  }
  return are_apart(arguments) && trace_key_parts(arguments).structure == arguments_;
}

}  // namespace sconce
