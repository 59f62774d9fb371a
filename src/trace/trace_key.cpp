#include "trace/trace_key.h"

#include "base/flat_map.h"

#include <ATen/Context.h>
#include <ATen/autocast_mode.h>
#include <c10/core/DefaultDtype.h>
#include <c10/core/GradMode.h>
#include <c10/core/InferenceMode.h>
#include <c10/core/impl/LocalDispatchKeySet.h>

#include <functional>
#include <string_view>

namespace sconce {
namespace {

void append_state(TraceKey& key) {
  const bool autocast = at::autocast::is_autocast_enabled(at::kCPU);
  key.push_back(static_cast<int64_t>(c10::GradMode::is_enabled()) | static_cast<int64_t>(c10::InferenceMode::is_enabled()) << 1 |
                static_cast<int64_t>(autocast) << 2 |
                static_cast<int64_t>(at::globalContext().deterministicAlgorithms()) << 3 |
                static_cast<int64_t>(c10::get_default_dtype_as_scalartype()) << 8 |
                static_cast<int64_t>(autocast ? at::autocast::get_autocast_dtype(at::kCPU) : c10::ScalarType::Undefined) << 16);
  key.push_back(static_cast<int64_t>(c10::impl::tls_local_dispatch_key_set().included_.raw_repr()));
}

// Numbers tensors, and storages by their first tensor. Tensors of one storage may overlap, and a write to one then changes the
// others.
class Identities {
 public:
  int64_t number_of(const void* object) { return numbers_.emplace(object, numbers_.size()).first->second; }

 private:
  FlatMap<const void*, int64_t> numbers_;
};

}  // namespace

TraceKey trace_key(std::span<const at::Tensor> inputs) {
  TraceKey key;
  key.reserve(2 + 10 * inputs.size());
  append_state(key);
  Identities identities;
  for (const at::Tensor& tensor : inputs) {
    if (!tensor.defined()) {
      key.push_back(-1);
      continue;
    }
    key.push_back(tensor.dim() | static_cast<int64_t>(tensor.scalar_type()) << 8 |
                  static_cast<int64_t>(tensor.device().type()) << 16 |
                  static_cast<int64_t>(static_cast<uint8_t>(tensor.device().index())) << 24 |
                  static_cast<int64_t>(tensor.requires_grad()) << 32 | static_cast<int64_t>(tensor.is_leaf()) << 33 |
                  static_cast<int64_t>(tensor.is_inference()) << 34);
    key.push_back(static_cast<int64_t>(tensor.key_set().raw_repr()));
    if (tensor.layout() != c10::kStrided) {
      continue;
    }
    key.insert(key.end(), tensor.sizes().begin(), tensor.sizes().end());
    key.insert(key.end(), tensor.strides().begin(), tensor.strides().end());
    key.push_back(tensor.storage_offset());
    key.push_back(identities.number_of(tensor.unsafeGetTensorImpl()) << 32 |
                  (tensor.has_storage() ? identities.number_of(tensor.storage().unsafeGetStorageImpl()) : 0));
  }
  return key;
}

uint64_t hash_of(const TraceKey& key) {
  return std::hash<std::string_view>()({reinterpret_cast<const char*>(key.data()), key.size() * sizeof(int64_t)});
}

std::string describe_inputs(std::span<const at::Tensor> inputs) {
  std::string text;
  for (const at::Tensor& tensor : inputs) {
    text += text.empty() ? "" : ", ";
    if (!tensor.defined()) {
      text += "undefined";
      continue;
    }
    std::string sizes;
    if (tensor.layout() == c10::kStrided) {
      for (const int64_t size : tensor.sizes()) {
        sizes += (sizes.empty() ? "" : ",") + std::to_string(size);
      }
    }
    text += c10::toString(tensor.scalar_type());
    text += "[" + sizes + "]";
    text += tensor.requires_grad() ? " requires_grad" : "";
  }
  return text;
}

}  // namespace sconce
