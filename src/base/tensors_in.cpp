#include "base/tensors_in.h"

#include <unordered_set>

namespace sconce {

std::vector<at::Tensor> tensors_in(const c10::IValue& value) {
  std::vector<at::Tensor> found;
  std::unordered_set<const void*> objects;
  value.visit([&](const c10::IValue& part) {
    if (part.isTensor() && part.toTensor().defined()) {
      found.push_back(part.toTensor());
    }
    return part.isObject() && !objects.insert(part.internalToPointer()).second;  // whether to leave out what it holds
  });
  return found;
}

}  // namespace sconce
