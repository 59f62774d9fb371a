// Reads a TensorImpl's fields directly.
//
// LibTorch's accessors check policies, subclasses and symbolic sizes first, and the accessor of the autograd metadata is a
// call into another library. Together that is over a hundred instructions per tensor, and a model may read hundreds of
// attributes in every call. The layout is that of the LibTorch version that sconce requires; tests/executor compares every
// field read here with its accessor.
#pragma once

#include <c10/core/TensorImpl.h>
#include <torch/csrc/autograd/variable.h>

#include <bit>
#include <cstring>

namespace sconce {

static_assert(std::endian::native == std::endian::little, "tensor_fields.h reads bit-fields of a little-endian layout");
static_assert(sizeof(c10::TensorImpl) == 192 || sizeof(c10::TensorImpl) == 184,
              "TensorImpl is not the one that tensor_fields.h knows");

// Never constructed: a derived class may name its base's protected members.
struct TensorFields : c10::TensorImpl {
  // Up to this rank the sizes are stored in the tensor itself.
  static constexpr size_t kInlineRank = C10_SIZES_AND_STRIDES_MAX_INLINE_SIZE;

  static c10::DispatchKeySet key_set_of(const c10::TensorImpl& tensor) { return tensor.*(&TensorFields::key_set_); }

  // Requires an ordinary key set. Other tensors may keep their sizes elsewhere.
  static const c10::impl::SizesAndStrides& sizes_and_strides_of(const c10::TensorImpl& tensor) {
    return tensor.*(&TensorFields::sizes_and_strides_);
  }

  // Null for a tensor without autograd metadata. The field is located before the member that can be named.
  static const torch::autograd::AutogradMeta* autograd_meta_of(const c10::TensorImpl& tensor) {
    const auto* const next = reinterpret_cast<const char*>(&(tensor.*(&TensorFields::extra_meta_)));
    c10::AutogradMetaInterface* meta = nullptr;
    std::memcpy(&meta, next - sizeof meta, sizeof meta);
    return static_cast<const torch::autograd::AutogradMeta*>(meta);
  }

  // The two bytes of the dtype, the three of the device, then the bit-fields from is_contiguous_ on.
  static uint64_t traits_of(const c10::TensorImpl& tensor) {
    uint64_t traits = 0;
    std::memcpy(&traits, &(tensor.*(&TensorFields::data_type_)), sizeof traits);
    return traits;
  }
};

// The bits of TensorFields::traits_of.
namespace tensor_traits {
constexpr uint64_t kDtypeMask = 0xffff;
constexpr int kFlagsShift = 40;
enum Flag : uint64_t {
  kContiguous = 1U << 0,
  kChannelsLast = 1U << 2,
  kChannelsLast3d = 1U << 4,
  kDense = 1U << 6,
  kWrappedNumber = 1U << 7,
};
inline uint64_t flags_of(uint64_t traits) { return (traits >> kFlagsShift) & 0xff; }
}  // namespace tensor_traits

}  // namespace sconce
