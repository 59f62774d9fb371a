// The fields of the words of an ArgumentSpec, as argument_spec.h draws them. The writer, the reader and the descriptions
// read this table. A field also needs:
//   - the drawing in argument_spec.h;
//   - both paths of the writer, `word_of_ordinary` and `write_unusual_tensor`;
//   - its fact in facts_of_spec.cpp, or a reason why none;
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
constexpr size_t kMaxIntegers = 16;  // limit for a list whose integers are part of a spec
constexpr size_t kMaxText = 64;      // limit for a string whose bytes are part of a spec

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
    Field{"inference", 47, 1, "1 for an inference tensor"},
};
constexpr Field kKind = kTensorFields[0];
constexpr Field kDtype = kTensorFields[1];
constexpr Field kDeviceType = kTensorFields[2];
constexpr Field kDeviceIndex = kTensorFields[3];
constexpr Field kRank = kTensorFields[4];
constexpr Field kRequiresGrad = kTensorFields[5];
constexpr Field kStrideClass = kTensorFields[6];
constexpr Field kOnes = kTensorFields[7];
constexpr Field kInference = kTensorFields[8];

// What a word that is not a tensor's describes, and what follows it. `length` is that of the word.
enum Form : uint64_t {
  kPresent = 0,     // a value that could be None and is not
  kLong = 1,        // a container of more than kMaxElements
  kList = 2,        // its `length` elements follow
  kTuple = 3,       // its `length` elements follow
  kNumbers = 4,     // a list of `length` numbers or strings, of which nothing follows
  kDict = 5,        // its `length` values follow
  kTensorDict = 6,  // its `length` keys and values follow, in turn
  kInteger = 7,     // the number follows
  kFloat = 8,       // the bits of the number follow
  kBool = 9,        // `length` is 1 or 0
  kString = 10,     // its `length` bytes follow, eight to a word
  kSizes = 11,      // of a parameter: its `length` sizes follow
  kIntegers = 12,   // a list of `length` integers, which follow
};
constexpr std::array kOtherFields = {
    Field{"length", 0, 32, "of a container or string"},
    Field{"form", 32, 4, "a Form"},
    Field{"other tag", 62, 1, "set"},
};
constexpr Field kLength = kOtherFields[0];
constexpr Field kForm = kOtherFields[1];
constexpr uint64_t kOtherTag = kOtherFields[2].mask();
constexpr uint64_t word_of(Form form, uint64_t length = 0) { return kOtherTag | kForm.with(form) | kLength.with(length); }

// Two tensors over the same memory.
constexpr std::array kSharedStorageFields = {
    Field{"sharer", 0, 24, "which tensor of the arguments, or which attribute"},
    Field{"is attribute", 24, 1, "1 where the sharer is an attribute"},
    Field{"first", 25, 24, "the first tensor of the arguments over the same memory"},
    Field{"shared storage tag", 63, 1, "set"},
};
constexpr Field kSharer = kSharedStorageFields[0];
constexpr Field kIsAttribute = kSharedStorageFields[1];
constexpr Field kFirst = kSharedStorageFields[2];
constexpr uint64_t kSharedStorageTag = kSharedStorageFields[3].mask();

// The state of the thread and the process: this word is first, then the included and excluded dispatch keys.
constexpr std::array kStateFields = {
    Field{"grad mode", 0, 1, "1 where it is on"},
    Field{"inference mode", 1, 1, "1 where it is on"},
    Field{"deterministic", 2, 1, "1 where only deterministic algorithms may run"},
    Field{"warn only", 3, 1, "1 where others run with a warning"},
    Field{"autocast cache", 4, 1, "1 where autocast is on and keeps what it casts"},
    Field{"default dtype", 8, 8, "a c10::ScalarType"},
    Field{"autocast dtype", 16, 8, "that of the CPU, one above the c10::ScalarType; 0 where autocast is off"},
    Field{"device autocast dtype", 24, 8, "that of devices other than the CPU, likewise"},
};
constexpr Field kGradMode = kStateFields[0];
constexpr Field kInferenceMode = kStateFields[1];
constexpr Field kDeterministic = kStateFields[2];
constexpr Field kWarnOnly = kStateFields[3];
constexpr Field kAutocastCache = kStateFields[4];
constexpr Field kDefaultDtype = kStateFields[5];
constexpr Field kAutocastDtype = kStateFields[6];
constexpr Field kDeviceAutocastDtype = kStateFields[7];
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
static_assert((bits_of_fields(kTensorFields) & (kOtherTag | kSharedStorageTag)) == 0);
static_assert((bits_of_fields(kOtherFields) & kSharedStorageTag) == 0);

}  // namespace sconce::spec_words
