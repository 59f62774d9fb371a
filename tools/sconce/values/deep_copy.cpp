#include "tools/sconce/values/deep_copy.h"

#include "base/deep_copy.h"

#include <optional>

namespace sconce::cli {
namespace {

std::vector<c10::IValue> copy_all(const std::vector<c10::IValue>& values, std::optional<c10::Device> device) {
  DeepCopy copier(device);
  std::vector<c10::IValue> copies;
  for (const c10::IValue& value : values) {
    copies.push_back(copier.copy(value));
  }
  return copies;
}

}  // namespace

std::vector<c10::IValue> deep_copy(const std::vector<c10::IValue>& values) { return copy_all(values, std::nullopt); }

c10::IValue deep_copy(const c10::IValue& value) { return DeepCopy().copy(value); }

std::vector<c10::IValue> deep_copy_to(const std::vector<c10::IValue>& values, c10::Device device) {
  return copy_all(values, device);
}

}  // namespace sconce::cli
