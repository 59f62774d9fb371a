#include "trace/trace_key.h"

#include "base/autocast.h"
#include "base/call_watch.h"
#include "base/flat_map.h"
#include "base/storage_of.h"

#include <ATen/Context.h>
#include <ATen/autocast_mode.h>
#include <c10/core/DefaultDtype.h>
#include <c10/core/GradMode.h>
#include <c10/core/InferenceMode.h>
#include <c10/core/impl/LocalDispatchKeySet.h>
#include <c10/util/SmallVector.h>

#include <algorithm>
#include <array>
#include <numeric>
#include <optional>
#include <utility>

namespace sconce {
namespace {

void append_state(TraceKey& key) {
  const c10::DispatchKeySet autocast = autocast_keys();
  const bool keeps_casts = !autocast.empty() && at::autocast::is_autocast_cache_enabled();
  key.push_back(static_cast<int64_t>(c10::GradMode::is_enabled()) |
                static_cast<int64_t>(c10::InferenceMode::is_enabled()) << 1 | static_cast<int64_t>(keeps_casts) << 2 |
                static_cast<int64_t>(at::globalContext().deterministicAlgorithms()) << 3 |
                static_cast<int64_t>(at::globalContext().deterministicAlgorithmsWarnOnly()) << 4 |
                static_cast<int64_t>(c10::get_default_dtype_as_scalartype()) << 8);
  const c10::impl::LocalDispatchKeySet dispatch = c10::impl::tls_local_dispatch_key_set();
  key.push_back(static_cast<int64_t>(dispatch.included_.remove(kWatchKey).raw_repr()));
  key.push_back(static_cast<int64_t>(dispatch.excluded_.raw_repr()));
  key.push_back(static_cast<int64_t>(autocast.raw_repr()));
  for (const at::DeviceType device : at::autocast::_AUTOCAST_SUPPORTED_DEVICES) {
    if (!autocast.empty() && autocast.has(at::autocast::get_autocast_dispatch_key_from_device_type(device))) {
      key.push_back(static_cast<int64_t>(at::autocast::get_autocast_dtype(device)));
    }
  }
}

// Numbers tensors, and storages by their first tensor. Tensors of one storage may overlap, and a write to one then changes
// the others.
class Identities {
 public:
  struct Storage {
    int64_t number;
    int64_t first_offset;  // of the first tensor in it
  };
  int64_t number_of(const at::Tensor& tensor) { return place_of(tensor.unsafeGetTensorImpl(), 0).number; }
  Storage storage_of(const at::Tensor& tensor) {
    const c10::StorageImpl* storage = sconce::storage_of(tensor);
    return storage != nullptr ? place_of(storage, tensor.storage_offset()) : Storage{0, 0};
  }

 private:
  Storage place_of(const void* object, int64_t offset) {
    const auto place = Storage{static_cast<int64_t>(places_.size()), offset};
    if (places_.size() < kSearched) {
      const auto found = std::ranges::find(places_, object, &Place::first);
      return found != places_.end() ? found->second : places_.emplace_back(object, place).second;
    }
    if (numbers_.empty()) {
      numbers_.insert(places_.begin(), places_.end());
    }
    const auto [found, is_new] = numbers_.emplace(object, place);
    if (is_new) {
      places_.emplace_back(object, place);
    }
    return found->second;
  }

  static constexpr size_t kSearched = 32;  // a map of fewer is slower
  using Place = std::pair<const void*, Storage>;
  c10::SmallVector<Place, 16> places_;
  FlatMap<const void*, Storage> numbers_;  // of all, once there are more
};

constexpr int64_t kHasGaps = -1;

bool is_contiguous_exactly(const at::Tensor& tensor) {
  int64_t expected = 1;
  for (int64_t i = tensor.dim(); i-- > 0;) {
    if (tensor.strides()[static_cast<size_t>(i)] != expected) {
      return false;
    }
    expected *= std::max<int64_t>(tensor.sizes()[static_cast<size_t>(i)], 1);
  }
  return true;
}

// Returns the tensor's dims, that with the largest stride first, four bits each; nothing if it has gaps.
std::optional<int64_t> dense_order(const at::Tensor& tensor) {
  std::array<uint8_t, 15> dims{};
  const auto rank = static_cast<size_t>(tensor.dim());
  if (rank > dims.size()) {
    return std::nullopt;
  }
  std::iota(dims.begin(), dims.begin() + static_cast<std::ptrdiff_t>(rank), uint8_t{0});
  for (size_t i = 1; i < rank; ++i) {  // std::stable_sort would allocate
    for (size_t j = i; j > 0 && tensor.strides()[dims[j - 1]] < tensor.strides()[dims[j]]; --j) {
      std::swap(dims[j - 1], dims[j]);
    }
  }
  int64_t expected = 1;
  int64_t order = 0;
  for (size_t i = rank; i-- > 0;) {
    if (tensor.strides()[dims[i]] != expected) {
      return std::nullopt;
    }
    expected *= std::max<int64_t>(tensor.sizes()[dims[i]], 1);
    order = order << 4 | (dims[i] + 1);
  }
  return order;
}

}  // namespace

int64_t tensor_kind(const at::Tensor& tensor) {
  return tensor.dim() | static_cast<int64_t>(tensor.scalar_type()) << 8 |
         static_cast<int64_t>(tensor.device().type()) << 16 |
         static_cast<int64_t>(static_cast<uint8_t>(tensor.device().index())) << 24 |
         static_cast<int64_t>(tensor.requires_grad()) << 32 | static_cast<int64_t>(tensor.is_leaf()) << 33 |
         static_cast<int64_t>(tensor.is_inference()) << 34;
}

bool has_gaps(const at::Tensor& tensor) { return !is_contiguous_exactly(tensor) && !dense_order(tensor); }

void append_tensors(TraceKeyParts& key, std::span<const at::Tensor> inputs) {
  Identities identities;
  for (const at::Tensor& tensor : inputs) {
    if (!tensor.defined()) {
      key.structure.push_back(-1);
      continue;
    }
    key.structure.push_back(tensor_kind(tensor));
    key.structure.push_back(static_cast<int64_t>(tensor.key_set().raw_repr()));
    if (tensor.layout() != c10::kStrided) {
      continue;
    }
    const int64_t order = is_contiguous_exactly(tensor) ? 0 : dense_order(tensor).value_or(kHasGaps);
    key.structure.push_back(order);
    const int64_t number = identities.number_of(tensor);
    const Identities::Storage storage = identities.storage_of(tensor);
    key.structure.push_back(number << 32 | storage.number);
    key.structure.push_back(tensor.storage_offset() - storage.first_offset);
    key.sizes.insert(key.sizes.end(), tensor.sizes().begin(), tensor.sizes().end());
    if (order == kHasGaps) {
      key.sizes.insert(key.sizes.end(), tensor.strides().begin(), tensor.strides().end());
    }
  }
}

TraceKeyParts trace_key_parts(std::span<const at::Tensor> inputs) {
  TraceKeyParts key;
  key.structure.reserve(3 + 6 * inputs.size());
  key.sizes.reserve(4 * inputs.size());
  append_state(key.structure);
  append_tensors(key, inputs);
  return key;
}

TraceKey trace_key(std::span<const at::Tensor> inputs) {
  TraceKeyParts key = trace_key_parts(inputs);
  key.structure.insert(key.structure.end(), key.sizes.begin(), key.sizes.end());
  return std::move(key.structure);
}

std::string_view bytes_of(const TraceKey& key) {
  return {reinterpret_cast<const char*>(key.data()), key.size() * sizeof(int64_t)};
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
