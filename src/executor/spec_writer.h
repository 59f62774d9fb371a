// Makes the words of an ArgumentSpec.
#pragma once

#include "executor/argument_spec.h"
#include "executor/attribute_memo.h"
#include "executor/spec_words.h"
#include "executor/tensor_fields.h"

#include <ATen/core/Tensor.h>

#include <array>
#include <utility>

namespace sconce {

// How words become a hash: four chains of multiplications side by side, folded at the end. Multiplying by an odd number
// loses nothing. The constants are those of MurmurHash64A and SplitMix64.
uint64_t hash_words(std::span<const uint64_t> words, std::array<uint64_t, 4> seeds = {});

// The key set of an ordinary strided tensor of the CPU, as TensorImpl's constructor puts it together.
extern const c10::DispatchKeySet kPlainCpuKeys;
// Of an ordinary strided tensor of any device that sconce knows, inference tensors included.
bool are_plain_keys(c10::DispatchKeySet keys);

// The stride class by the flags of a tensor's traits (tensor_fields.h), in its place in the word.
extern const std::array<uint64_t, 256> kStrideBits;

class SpecWriter {
 public:
  // Writes the words of the state.
  SpecWriter(ArgumentSpec& spec, bool with_shapes);

  [[gnu::always_inline]] void write_value(const c10::IValue& value) {
    if (value.isTensor()) [[likely]] {
      write_tensor(*value.unsafeToTensorImpl());
    } else {
      write_other_value(value);
    }
  }

  // The words of the attributes: either all the words that were written since the state's, or those of a memo.
  void end_attributes();
  void write_attributes(const AttributeMemo& memo);

  // Groups of tensors, wherever the arguments hold them, by the first that lies in the same storage.
  void write_shared_storage(std::span<const c10::IValue> arguments);

  void finish();

 private:
  void push(uint64_t word) {
    if (out_ == limit_) [[unlikely]] {
      grow(1);
    }
    *out_++ = word;
  }
  void grow(size_t words);

  // A model's attributes are hundreds of tensors: the ordinary tensor is the fast path, every instruction of it counts.
  [[gnu::always_inline]] void write_tensor(const c10::TensorImpl& tensor) {
    const uint64_t traits = TensorFields::traits_of(tensor);
    const uint64_t flags = tensor_traits::flags_of(traits);
    const c10::impl::SizesAndStrides& shape = TensorFields::sizes_and_strides_of(tensor);
    const size_t rank = shape.size();
    const torch::autograd::AutogradMeta* const autograd = TensorFields::autograd_meta_of(tensor);
    if (TensorFields::key_set_of(tensor) != plain_cpu_keys_ || rank > TensorFields::kInlineRank ||
        (flags & tensor_traits::kWrappedNumber) != 0 || with_shapes_) [[unlikely]] {
      return write_unusual_tensor(tensor);
    }
    uint64_t requires_grad = 0;
    if (autograd != nullptr) {
      if (autograd->fw_grad_ != nullptr) [[unlikely]] {
        return write_unusual_tensor(tensor);
      }
      requires_grad = static_cast<uint64_t>(autograd->requires_grad_ | (autograd->grad_fn_ != nullptr));
    }
    // All that lie in the tensor, a fixed number of them: no branch. What lies behind its rank is masked.
    const int64_t* const sizes = shape.sizes_data();
    static_assert(TensorFields::kInlineRank == 5);
    const auto one = [sizes](size_t dim) { return static_cast<uint64_t>(sizes[dim] == 1) << dim; };
    const uint64_t ones = (one(0) | one(1) | one(2) | one(3) | one(4)) & ~(~uint64_t{0} << rank);
    push_tensor(spec_words::kPlain | (traits & tensor_traits::kDtypeMask) << spec_words::kDtypeShift | kCpuBits |
                rank << spec_words::kRankShift | requires_grad << spec_words::kRequiresGradShift | kStrideBits[flags] |
                ones << spec_words::kOnesShift);
  }
  void push_tensor(uint64_t word) {
    tensors_ |= word;
    push(word);
  }

  void write_unusual_tensor(const c10::TensorImpl& tensor);
  void write_other_value(const c10::IValue& value);
  void write_list(const c10::IValue& value);

  static constexpr uint64_t kCpuBits = static_cast<uint64_t>(c10::DeviceType::CPU) << spec_words::kDeviceTypeShift;

  ArgumentSpec& spec_;
  uint64_t* out_ = nullptr;
  uint64_t* limit_ = nullptr;
  uint64_t tensors_ = 0;  // all words of plain tensors, or-ed
  const c10::DispatchKeySet plain_cpu_keys_ = kPlainCpuKeys;
  const bool with_shapes_;
  const uint64_t memo_in_spec_;  // whose words still stand in the spec
  size_t attributes_end_ = spec_words::kStateWords;
  uint64_t attributes_hash_ = 0;
};

}  // namespace sconce
