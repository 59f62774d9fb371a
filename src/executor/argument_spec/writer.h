// Makes the words of an ArgumentSpec.
#pragma once

#include "executor/argument_spec/argument_spec.h"
#include "executor/argument_spec/attribute_memo.h"
#include "executor/argument_spec/fields.h"
#include "executor/argument_spec/tensor_fields.h"

#include <ATen/core/Tensor.h>

#include <array>

namespace sconce {

// How words become a hash: four chains of multiplications side by side, folded at the end. Multiplying by an odd number
// loses nothing. The constants are those of MurmurHash64A and SplitMix64.
[[gnu::always_inline]] inline uint64_t hash_words(const uint64_t* words, size_t count, uint64_t a = 0, uint64_t b = 0,
                                                  uint64_t c = 0, uint64_t d = 0) {
  constexpr uint64_t kMultiplier = 0xc6a4a7935bd1e995;
  a = (a ^ count) * kMultiplier;
  b = (b ^ 0x9e3779b97f4a7c15) * kMultiplier;
  c = (c ^ 0xbf58476d1ce4e5b9) * kMultiplier;
  d = (d ^ 0x94d049bb133111eb) * kMultiplier;
  const uint64_t* const end = words + count;
  for (; end - words >= 4; words += 4) {
    a = (a ^ words[0]) * kMultiplier;
    b = (b ^ words[1]) * kMultiplier;
    c = (c ^ words[2]) * kMultiplier;
    d = (d ^ words[3]) * kMultiplier;
  }
  for (; words != end; ++words) {
    a = ((a ^ words[0]) * kMultiplier) ^ (a >> 32);
  }
  const auto fold = [](uint64_t hash, uint64_t lane) { return (hash ^ lane ^ (lane >> 32)) * kMultiplier; };
  const uint64_t hash = fold(fold(fold(fold(0, a), b), c), d);
  return hash ^ (hash >> 31);
}

// The key set of an ordinary strided tensor of the CPU, as TensorImpl's constructor puts it together.
extern const c10::DispatchKeySet kPlainCpuKeys;
// Returns whether the keys are those of an ordinary strided tensor of a supported device, inference tensors included.
bool are_plain_keys(c10::DispatchKeySet keys);
// Whether a spec says no more of a defined tensor than its key set: rule R10.
bool is_exotic(const c10::TensorImpl& tensor);

// The stride class by the flags of a tensor's traits (tensor_fields.h), in its place in the word. For tensors without dims
// of one or no elements, where the flags tell all.
extern const std::array<uint64_t, 256> kStrideBits;
// Returns the stride class and the dims of one element, in their places in the word.
uint64_t shape_bits(c10::IntArrayRef sizes, c10::IntArrayRef strides, uint64_t flags);

class SpecWriter {
 public:
  // Writes the words of the state.
  explicit SpecWriter(ArgumentSpec& spec);

  void write_value(const c10::IValue& value) {
    write_values(1, [&value](size_t) -> const c10::IValue& { return value; });
  }

  // `value(0)`, `value(1)`, … Models have hundreds of attributes: the ordinary tensor is the fast path, every instruction of
  // it counts.
  template <typename ValueAt>
  [[gnu::always_inline]] void write_values(size_t count, const ValueAt& value) {
    uint64_t* out = reserve(count);
    uint64_t tensors = 0;
    for (size_t i = 0; i < count; ++i) {
      const c10::IValue& each = value(i);
      const uint64_t word = each.isTensor() ? word_of_ordinary(*each.unsafeToTensorImpl()) : 0;
      if (word == 0) [[unlikely]] {
        out_ = out;
        write_unusual(each);
        out = reserve(count - i - 1);
        continue;
      }
      tensors |= word;
      *out++ = word;
    }
    out_ = out;
    tensors_ |= tensors;
  }

  // Writes the sizes of a tensor, none of one that is not plain.
  void write_sizes(const c10::IValue& value);
  // Writes the value of a number, bool, string, None or list of integers.
  void write_constant(const c10::IValue& value);

  // End the attributes: with all words written since the state's, or with the words of a memo.
  void end_attributes();
  void write_attributes(const AttributeMemo& memo);
  // Returns how many words the attributes have.
  size_t attribute_words() const { return attributes_end_ - spec_words::kStateWords; }

  // Writes which tensors, anywhere in the arguments or the attributes, lie in the storage of an earlier tensor of the
  // arguments.
  void write_shared_storage(std::span<const c10::IValue> arguments, std::span<const c10::IValue* const> attributes);

  void finish();

 private:
  // Returns the place of the next words, with room for `words` of them.
  uint64_t* reserve(size_t words) {
    if (static_cast<size_t>(limit_ - out_) < words) [[unlikely]] {
      grow(words);
    }
    return out_;
  }
  void grow(size_t words);
  void push(uint64_t word) {
    reserve(1);
    *out_++ = word;
  }

  // Returns 0 for a tensor that is not ordinary: on another device, undefined, exotic, of high rank, an inference tensor,
  // or a view known to autograd.
  [[gnu::always_inline]] uint64_t word_of_ordinary(const c10::TensorImpl& tensor) const {
    const uint64_t traits = TensorFields::traits_of(tensor);
    const uint64_t flags = tensor_traits::flags_of(traits);
    const c10::impl::SizesAndStrides& shape = TensorFields::sizes_and_strides_of(tensor);
    const size_t rank = shape.size();
    if (TensorFields::key_set_of(tensor) != plain_cpu_keys_ || rank > TensorFields::kInlineRank ||
        (flags & tensor_traits::kWrappedNumber) != 0) [[unlikely]] {
      return 0;
    }
    uint64_t requires_grad = 0;
    if (const torch::autograd::AutogradMeta* const autograd = TensorFields::autograd_meta_of(tensor)) {
      // A view requires a gradient exactly if its base does.
      if (autograd->fw_grad_ != nullptr || autograd->is_view_) [[unlikely]] {
        return 0;
      }
      requires_grad = static_cast<uint64_t>(autograd->requires_grad_ | (autograd->grad_fn_ != nullptr));
    }
    // Compares all sizes stored in the tensor, a fixed number of them, so that there is no branch. Sizes beyond its
    // rank are masked.
    const int64_t* const sizes = shape.sizes_data();
    static_assert(TensorFields::kInlineRank == 5);
    const auto is_small = [sizes](size_t dim) {
      return static_cast<uint64_t>(static_cast<uint64_t>(sizes[dim]) < 2) << dim;
    };
    const uint64_t small = (is_small(0) | is_small(1) | is_small(2) | is_small(3) | is_small(4)) & ~(~uint64_t{0} << rank);
    return spec_words::kPlain | spec_words::kDtype.with(traits & tensor_traits::kDtypeMask) | kCpuBits |
           spec_words::kRank.with(rank) | spec_words::kRequiresGrad.with(requires_grad) |
           (small == 0 ? kStrideBits[flags] : shape_bits(shape.sizes_arrayref(), shape.strides_arrayref(), flags));
  }

  void write_unusual(const c10::IValue& value);
  void write_unusual_tensor(const c10::TensorImpl& tensor);
  void write_other_value(const c10::IValue& value);
  bool begin_container(spec_words::Form form, size_t length);
  void write_list(const c10::IValue& value);

  static constexpr uint64_t kCpuBits = spec_words::kDeviceType.with(static_cast<uint64_t>(c10::DeviceType::CPU));

  ArgumentSpec& spec_;
  uint64_t* out_ = nullptr;
  uint64_t* limit_ = nullptr;
  uint64_t tensors_ = 0;  // bitwise or of all words of plain tensors
  const c10::DispatchKeySet plain_cpu_keys_ = kPlainCpuKeys;
  const uint64_t memo_in_spec_;  // the memo whose words the spec holds from its last use
  size_t attributes_end_ = spec_words::kStateWords;
  uint64_t attributes_hash_ = 0;
};

}  // namespace sconce
