// The fields of the words of an ArgumentSpec, as argument_spec.h draws them. The writer and the descriptions read this
// table. A field also needs:
//   - the drawing in argument_spec.h;
//   - both paths of the writer, `word_of_ordinary` and `write_unusual_tensor`;
//   - its text in describe.cpp;
//   - a part of the record in attribute_memo.cpp, or a reason why none;
//   - a test in each.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <string_view>

namespace sconce::spec_words {

struct Field {
  std::string_view name;
  int shift;
  int width;
  std::string_view meaning;

  constexpr uint64_t mask() const { return (~uint64_t{0} >> (64 - width)) << shift; }
  // Returns what a word has in this field.
  constexpr uint64_t of(uint64_t word) const { return (word & mask()) >> shift; }
  // Returns a word with the value in this field. The value must fit.
  constexpr uint64_t with(uint64_t value) const { return value << shift; }
};

enum Kind : uint64_t { kNone = 0, kUndefined = 1, kPlain = 2, kExotic = 3 };
constexpr size_t kMaxRank = 16;
constexpr size_t kMaxElements = 64;  // limit for a container whose elements are part of a spec

// A tensor, or None.
constexpr std::array kTensorFields = {
    Field{"kind", 0, 2, "none, undefined, plain or exotic"},
    Field{"dtype", 2, 6, "a c10::ScalarType"},
    Field{"device type", 8, 5, "a c10::DeviceType"},
    Field{"device index", 13, 8, "one above the index; 0 for the current device"},
    Field{"rank", 21, 6, "of a plain tensor"},
    Field{"requires_grad", 27, 1, "1 where the tensor requires a gradient"},
    Field{"stride class", 28, 3, "a StrideClass"},
    Field{"ones", 31, kMaxRank, "a bit for each dimension, 1 where its size is 1"},
};
constexpr Field kKind = kTensorFields[0];
constexpr Field kDtype = kTensorFields[1];
constexpr Field kDeviceType = kTensorFields[2];
constexpr Field kDeviceIndex = kTensorFields[3];
constexpr Field kRank = kTensorFields[4];
constexpr Field kRequiresGrad = kTensorFields[5];
constexpr Field kStrideClass = kTensorFields[6];
constexpr Field kOnes = kTensorFields[7];

// An argument that is not a tensor. One of the tags is set.
constexpr std::array kOtherFields = {
    Field{"length", 0, 32, "the elements of a container"},
    Field{"long tag", 60, 1, "a container of more than kMaxElements"},
    Field{"present tag", 61, 1, "a value that could be None and is not"},
    Field{"length tag", 62, 1, "set in all three"},
};
constexpr Field kLength = kOtherFields[0];
constexpr uint64_t kLengthTag = kOtherFields[3].mask();
constexpr uint64_t kPresent = kLengthTag | kOtherFields[2].mask();
constexpr uint64_t kLong = kLengthTag | kOtherFields[1].mask();

// Two arguments over the same memory.
constexpr std::array kSharedStorageFields = {
    Field{"argument", 0, 16, "which tensor of the arguments"},
    Field{"first", 16, 16, "the first tensor over the same memory"},
    Field{"shared storage tag", 63, 1, "set"},
};
constexpr Field kArgument = kSharedStorageFields[0];
constexpr Field kFirst = kSharedStorageFields[1];
constexpr uint64_t kSharedStorageTag = kSharedStorageFields[2].mask();

// The state of the thread and the process: this word is first, then the included and excluded dispatch keys.
constexpr std::array kStateFields = {
    Field{"grad mode", 0, 1, "1 where it is on"},
    Field{"inference mode", 1, 1, "1 where it is on"},
    Field{"deterministic", 2, 1, "1 where only deterministic algorithms may run"},
    Field{"warn only", 3, 1, "1 where others run with a warning"},
    Field{"default dtype", 8, 8, "a c10::ScalarType"},
};
constexpr Field kGradMode = kStateFields[0];
constexpr Field kInferenceMode = kStateFields[1];
constexpr Field kDeterministic = kStateFields[2];
constexpr Field kWarnOnly = kStateFields[3];
constexpr Field kDefaultDtype = kStateFields[4];
constexpr size_t kStateWords = 3;

template <size_t kCount>
constexpr uint64_t bits_of_fields(const std::array<Field, kCount>& fields) {
  uint64_t bits = 0;
  for (const Field& field : fields) {
    bits |= field.mask();
  }
  return bits;
}

template <size_t kCount>
constexpr bool do_not_overlap(const std::array<Field, kCount>& fields) {
  uint64_t bits = 0;
  for (const Field& field : fields) {
    if ((bits & field.mask()) != 0) {
      return false;
    }
    bits |= field.mask();
  }
  return true;
}

static_assert(do_not_overlap(kTensorFields));
static_assert(do_not_overlap(kOtherFields));
static_assert(do_not_overlap(kSharedStorageFields));
static_assert(do_not_overlap(kStateFields));
// The tags distinguish the kinds of words.
static_assert((bits_of_fields(kTensorFields) & (kLong | kPresent | kSharedStorageTag)) == 0);
static_assert((bits_of_fields(kOtherFields) & kSharedStorageTag) == 0);

}  // namespace sconce::spec_words
