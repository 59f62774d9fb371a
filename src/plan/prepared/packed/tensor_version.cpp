#include "plan/prepared/packed/tensor_version.h"

#include <cstring>

namespace sconce {

std::optional<TensorVersion> TensorVersion::of(const c10::TensorImpl& tensor) {
  if (!tensor.version_counter().enabled() || !tensor.has_storage() || tensor.numel() == 0) {
    return std::nullopt;
  }
  return TensorVersion(tensor);
}

std::optional<WeightVersions> WeightVersions::of(const c10::TensorImpl& weight, const c10::TensorImpl* bias) {
  auto of_weight = TensorVersion::of(weight);
  auto of_bias = bias == nullptr ? std::nullopt : TensorVersion::of(*bias);
  if (!of_weight || (bias != nullptr && !of_bias)) {
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

// Sums of products with odd numbers that depend on the position: each bit of an element counts.
uint64_t checksum_of(const c10::TensorImpl& tensor) {
  constexpr uint64_t kStep = 0x9e3779b97f4a7c16;  // even, so that all factors are odd
  const auto* elements = static_cast<const char*>(tensor.data());
  uint64_t sum = 0;
  uint64_t factor = 1;
  for (int64_t i = 0; i < tensor.numel(); ++i, factor += kStep) {
    uint32_t bits = 0;
    std::memcpy(&bits, elements + i * static_cast<int64_t>(sizeof(bits)), sizeof(bits));
    sum += bits * factor;
  }
  return sum;
}

}  // namespace sconce
