#include "kernels/packed/tensor_version.h"

#include <cstring>

namespace sconce {

std::optional<TensorVersion> TensorVersion::of(const c10::TensorImpl& tensor) {
  if (!tensor.version_counter().enabled() || !tensor.has_storage() || tensor.numel() == 0) {
    return std::nullopt;
  }
  return TensorVersion(tensor);
}

std::optional<WeightVersions> WeightVersions::of(WeightTensors tensors) {
  auto of_weight = TensorVersion::of(*tensors.weight);
  auto of_bias = tensors.bias == nullptr ? std::nullopt : TensorVersion::of(*tensors.bias);
  if (!of_weight || (tensors.bias != nullptr && !of_bias)) {
    return std::nullopt;
  }
  return WeightVersions(*std::move(of_weight), std::move(of_bias));
}

TensorVersion::TensorVersion(const c10::TensorImpl& tensor)
    : storage_(tensor.storage().getWeakStorageImpl()),
      data_(tensor.data()),
      version_(tensor.version_counter().current_version()),
      samples_(samples_of(tensor)) {}

TensorVersion::Samples TensorVersion::samples_of(const c10::TensorImpl& tensor) {
  Samples samples;
  const auto* elements = static_cast<const char*>(tensor.data());
  const size_t last = static_cast<size_t>(tensor.numel()) - 1;
  for (size_t i = 0; i < samples.size(); ++i) {
    std::memcpy(&samples[i], elements + last * i / (samples.size() - 1) * sizeof(float), sizeof(float));
  }
  return samples;
}

}  // namespace sconce
