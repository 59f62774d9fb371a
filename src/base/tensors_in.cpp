#include "base/tensors_in.h"

#include <unordered_set>

namespace sconce {

void for_each_part(const c10::IValue& value, c10::function_ref<void(const c10::IValue&)> use) {
  std::unordered_set<const void*> objects;
  value.visit([&](const c10::IValue& part) {
    if (part.isObject() && !objects.insert(part.internalToPointer()).second) {
      return true;  // leave out what it holds
    }
    use(part);
    return false;
  });
}

std::vector<at::Tensor> tensors_in(const c10::IValue& value) {
  std::vector<at::Tensor> found;
  for_each_part(value, [&](const c10::IValue& part) {
    if (part.isTensor() && part.toTensor().defined()) {
      found.push_back(part.toTensor());
    }
  });
  return found;
}

}  // namespace sconce
