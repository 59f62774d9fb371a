#include "executor/argument_spec/attribute_memo.h"

#include "executor/argument_spec/fields.h"
#include "executor/argument_spec/tensor_fields.h"
#include "executor/argument_spec/writer.h"

#include <algorithm>
#include <atomic>
#include <bit>

namespace sconce {
namespace {

constexpr size_t kFixedFields = 5;

uint64_t bits_of(const void* pointer) { return reinterpret_cast<uintptr_t>(pointer); }

// Returns the address of the metadata with requires_grad in the lowest bit. A gradient function, a forward gradient,
// or a base of which the tensor is a view sets the second lowest bit, which no record has.
uint64_t autograd_bits(const torch::autograd::AutogradMeta* meta) {
  if (meta == nullptr) {
    return 0;
  }
  const bool is_computed = meta->grad_fn_ != nullptr || meta->fw_grad_ != nullptr || meta->is_view_;
  return bits_of(meta) | static_cast<uint64_t>(meta->requires_grad_) | static_cast<uint64_t>(is_computed) << 1;
}

bool can_be_remembered(const c10::IValue& attribute, uint64_t word) {
  if (spec_words::kKind.of(word) != spec_words::kPlain) {
    return false;
  }
  const c10::TensorImpl& tensor = *attribute.unsafeToTensorImpl();
  return TensorFields::sizes_and_strides_of(tensor).size() <= TensorFields::kInlineRank &&
         (autograd_bits(TensorFields::autograd_meta_of(tensor)) & 2) == 0;
}

bool has_elements(const c10::IValue& list, const std::vector<int64_t>& elements) {
  const c10::ArrayRef<c10::IValue> now = list.toListRef();
  return std::equal(now.begin(), now.end(), elements.begin(), elements.end(),
                    [](const c10::IValue& a, int64_t b) { return a.toInt() == b; });
}

// Compares an attribute with `record`, and moves on to the next record. Ors differences into `difference`. Returns
// false if the attribute is another tensor.
template <size_t kRank>
[[gnu::always_inline]] inline bool compare(const uint64_t*& record, size_t count, uint64_t& difference) {
  for (; count > 0; --count, record += kFixedFields + kRank) {
    const auto* const slot = std::bit_cast<const c10::IValue*>(record[0]);
    if (!slot->isTensor() || bits_of(slot->unsafeToTensorImpl()) != record[1]) {
      return false;
    }
    const c10::TensorImpl& tensor = *slot->unsafeToTensorImpl();
    const c10::impl::SizesAndStrides& shape = TensorFields::sizes_and_strides_of(tensor);
    if (shape.size() != kRank) {
      return false;
    }
    difference |= (TensorFields::key_set_of(tensor).raw_repr() ^ record[2]) | (TensorFields::traits_of(tensor) ^ record[3]) |
                  (autograd_bits(TensorFields::autograd_meta_of(tensor)) ^ record[4]);
    for (size_t dim = 0; dim < kRank; ++dim) {
      difference |= static_cast<uint64_t>(shape.size_at_unchecked(dim)) ^ record[kFixedFields + dim];
    }
  }
  return true;
}

}  // namespace

AttributeMemo::AttributeMemo(std::span<const FoundObject> objects, std::span<const c10::IValue* const> constants,
                             std::span<const uint64_t> words, size_t tensors)
    : id_([] {
        static std::atomic<uint64_t> next{0};
        return ++next;
      }()),
      objects_(objects.begin(), objects.end()),
      words_(words.begin(), words.end()),
      hash_(hash_words(words.data(), words.size())) {
  for (const FoundObject& found : objects) {
    slots_.push_back(found.object->slots().data());
  }
  for (const uint64_t word : words.first(tensors)) {
    tensors_ored_ |= word;
  }
  for (const c10::IValue* slot : constants) {
    constants_.push_back(constant_in(slot));
    if (slot->isString()) {
      texts_.push_back(slot->toStringRef());
    } else if (slot->isIntList()) {
      lists_.push_back(slot->toIntVector());
    }
  }
}

// All other values, which have one word in common, are of one kind.
AttributeMemo::Constant AttributeMemo::constant_in(const c10::IValue* slot) {
  enum : uint64_t { kInteger, kFloat, kBool, kNone, kString, kIntegers, kOther };
  return slot->isInt()       ? Constant{slot, kInteger, static_cast<uint64_t>(slot->toInt())}
         : slot->isDouble()  ? Constant{slot, kFloat, std::bit_cast<uint64_t>(slot->toDouble())}
         : slot->isBool()    ? Constant{slot, kBool, static_cast<uint64_t>(slot->toBool())}
         : slot->isNone()    ? Constant{slot, kNone, 0}
         : slot->isString()  ? Constant{slot, kString, 0}
         : slot->isIntList() ? Constant{slot, kIntegers, 0}
                             : Constant{slot, kOther, 0};
}

bool AttributeMemo::holds_strides() const {
  return std::all_of(strides_.begin(), strides_.end(), [](const Strides& known) {
    return TensorFields::sizes_and_strides_of(*known.tensor).strides_arrayref() == c10::IntArrayRef(known.strides);
  });
}

bool AttributeMemo::holds_constants() const {
  const std::string* text = texts_.data();
  const std::vector<int64_t>* list = lists_.data();
  for (const Constant& known : constants_) {
    const Constant now = constant_in(known.slot);
    if (now.kind != known.kind || now.bits != known.bits ||
        (known.slot->isString() && known.slot->toStringRef() != *text++) ||
        (known.slot->isIntList() && !has_elements(*known.slot, *list++))) {
      return false;
    }
  }
  return true;
}

std::unique_ptr<const AttributeMemo> AttributeMemo::make(std::span<const FoundObject> objects,
                                                         std::span<const c10::IValue* const> tensors,
                                                         std::span<const c10::IValue* const> constants,
                                                         std::span<const uint64_t> words) {
  if (words.size() < tensors.size()) {
    return nullptr;
  }
  for (size_t i = 0; i < tensors.size(); ++i) {
    if (!can_be_remembered(*tensors[i], words[i])) {
      return nullptr;
    }
  }
  std::unique_ptr<AttributeMemo> memo(new AttributeMemo(objects, constants, words, tensors.size()));
  for (size_t rank = 0; rank <= TensorFields::kInlineRank; ++rank) {
    for (const c10::IValue* attribute : tensors) {
      const c10::TensorImpl& tensor = *attribute->unsafeToTensorImpl();
      const c10::impl::SizesAndStrides& shape = TensorFields::sizes_and_strides_of(tensor);
      if (shape.size() == rank) {
        ++memo->count_of_rank_[rank];
        memo->records_.insert(memo->records_.end(),
                              {bits_of(attribute), bits_of(&tensor), TensorFields::key_set_of(tensor).raw_repr(),
                               TensorFields::traits_of(tensor), autograd_bits(TensorFields::autograd_meta_of(tensor))});
        memo->records_.insert(memo->records_.end(), shape.sizes_data(), shape.sizes_data() + rank);
        if (std::any_of(shape.sizes_data(), shape.sizes_data() + rank, [](int64_t size) { return size < 2; })) {
          memo->strides_.push_back({&tensor, shape.strides_arrayref().vec()});
        }
      }
    }
  }
  return memo;
}

bool AttributeMemo::holds(std::span<const c10::IValue> arguments) const {
  // An owner comes before the objects it holds: a slot is read only if its owner is still the same object.
  for (size_t i = 0; i < objects_.size(); ++i) {
    const FoundObject& found = objects_[i];
    const c10::IValue& value = found.slot == nullptr ? arguments[found.argument] : *found.slot;
    const c10::ivalue::Object& object = value.toObjectRef();
    if (&object != found.object || object.slots().data() != slots_[i]) {
      return false;
    }
  }
  static_assert(TensorFields::kInlineRank == 5);
  const uint64_t* record = records_.data();
  uint64_t difference = 0;
  return compare<0>(record, count_of_rank_[0], difference) && compare<1>(record, count_of_rank_[1], difference) &&
         compare<2>(record, count_of_rank_[2], difference) && compare<3>(record, count_of_rank_[3], difference) &&
         compare<4>(record, count_of_rank_[4], difference) && compare<5>(record, count_of_rank_[5], difference) &&
         difference == 0 && holds_strides() && holds_constants();
}

}  // namespace sconce
