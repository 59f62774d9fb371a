#include "tools/sconce/values/value_walk.h"

#include <ATen/core/class_type.h>

#include <unordered_map>
#include <unordered_set>

namespace sconce::cli {
namespace {

class TensorWalk {
 public:
  explicit TensorWalk(Objects objects) : objects_(objects) {}

  void visit(const c10::IValue& value, const std::string& path) {
    if (value.isTensor()) {
      if (value.toTensor().defined()) {
        found_.push_back({path, value.toTensor()});
      }
    } else if (value.isTensorList() || value.isList()) {
      visit_all(value.toListRef(), path);
    } else if (value.isTuple()) {
      visit_all(value.toTupleRef().elements(), path);
    } else if (value.isGenericDict()) {
      for (const auto& entry : value.toGenericDict()) {
        const std::string key = entry.key().isString() ? '"' + entry.key().toStringRef() + '"' : c10::str(entry.key());
        visit(entry.value(), path + "[" + key + "]");
      }
    } else if (value.isObject() && objects_ == Objects::kEnter) {
      const c10::ivalue::Object& object = value.toObjectRef();
      if (visited_.insert(&object).second) {
        for (size_t i = 0; i < object.slots().size(); ++i) {
          visit(object.getSlot(i), path + "." + object.type()->getAttributeName(i));
        }
      }
    }
  }

  std::vector<NamedTensor> take() { return std::move(found_); }

 private:
  template <typename Sequence>
  void visit_all(const Sequence& values, const std::string& path) {
    for (size_t i = 0; i < values.size(); ++i) {
      visit(values[i], path + "[" + std::to_string(i) + "]");
    }
  }

  const Objects objects_;
  std::vector<NamedTensor> found_;
  std::unordered_set<const c10::ivalue::Object*> visited_;
};

}  // namespace

std::vector<NamedTensor> tensors_in(const c10::IValue& value, const std::string& path, Objects objects) {
  TensorWalk walk(objects);
  walk.visit(value, path);
  return walk.take();
}

std::vector<std::string> sharing_of(const std::vector<NamedTensor>& before, const std::vector<NamedTensor>& values) {
  std::unordered_map<const c10::StorageImpl*, std::string> owners;
  const auto storage_of = [](const NamedTensor& named) {
    const at::Tensor& tensor = named.tensor;
    return tensor.has_storage() ? tensor.storage().unsafeGetStorageImpl() : nullptr;
  };
  for (const NamedTensor& named : before) {
    owners.emplace(storage_of(named), named.path);
  }
  std::vector<std::string> sharing;
  for (const NamedTensor& named : values) {
    const c10::StorageImpl* storage = storage_of(named);
    if (storage == nullptr) {
      continue;
    }
    const auto [owner, is_new] = owners.emplace(storage, named.path);
    if (!is_new) {
      sharing.push_back(named.path + " shares memory with " + owner->second);
    }
  }
  return sharing;
}

}  // namespace sconce::cli
