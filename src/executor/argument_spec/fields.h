// The fields of the words of an ArgumentSpec, as argument_spec.h draws them. The writer, the reader and the descriptions
// read this table. A field also needs:
//   - the drawing in argument_spec.h;
//   - both paths of the writer, `word_of_ordinary` and `write_unusual_tensor`;
//   - its fact in facts_of_spec.cpp, or a reason why none;
//   - its text in describe.cpp;
//   - a part of the record in attribute_memo.cpp, or a reason why none;
//   - a test in each.
#pragma once

#include <cstddef>
#include <cstdint>
#include <initializer_list>

namespace sconce::spec_words {

struct Field {
  int shift;
  int width;

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
constexpr Field kKind{0, 2};           // none, undefined, plain or exotic
constexpr Field kDtype{2, 6};          // a c10::ScalarType
constexpr Field kDeviceType{8, 5};     // a c10::DeviceType
constexpr Field kDeviceIndex{13, 8};   // one above the index; 0 for the current device
constexpr Field kRank{21, 6};          // of a plain tensor
constexpr Field kRequiresGrad{27, 1};  // 1 where the tensor requires a gradient
constexpr Field kStrideClass{28, 3};   // a StrideClass
constexpr Field kOnes{31, kMaxRank};   // a bit for each dimension, 1 where its size is 1
constexpr Field kInference{47, 1};     // 1 for an inference tensor

// The value that a word describes if it is no tensor's, and the words that follow it. `length` is the word's.
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
constexpr Field kLength{0, 32};  // of a container or string
constexpr Field kForm{32, 4};    // a Form
constexpr uint64_t kOtherTag = Field{62, 1}.mask();
constexpr uint64_t word_of(Form form, uint64_t length = 0) { return kOtherTag | kForm.with(form) | kLength.with(length); }

// Two tensors over the same memory.
constexpr Field kSharer{0, 24};       // which tensor of the arguments, or which attribute
constexpr Field kIsAttribute{24, 1};  // 1 where the sharer is an attribute
constexpr Field kFirst{25, 24};       // the first tensor of the arguments over the same memory
constexpr uint64_t kSharedStorageTag = Field{63, 1}.mask();

// The state of the thread and the process: this word is first, then the included and excluded dispatch keys.
constexpr Field kGradMode{0, 1};              // 1 where it is on
constexpr Field kInferenceMode{1, 1};         // 1 where it is on
constexpr Field kDeterministic{2, 1};         // 1 where only deterministic algorithms may run
constexpr Field kWarnOnly{3, 1};              // 1 where others run with a warning
constexpr Field kAutocastCache{4, 1};         // 1 where autocast is on and keeps what it casts
constexpr Field kDefaultDtype{8, 8};          // a c10::ScalarType
constexpr Field kAutocastDtype{16, 8};        // that of the CPU, one above the c10::ScalarType; 0 where autocast is off
constexpr Field kDeviceAutocastDtype{24, 8};  // that of devices other than the CPU, likewise
constexpr size_t kStateWords = 3;

// Returns the bits of fields, which must not overlap.
consteval uint64_t bits_of(std::initializer_list<Field> fields) {
  uint64_t bits = 0;
  for (const Field& field : fields) {
    bits = (bits & field.mask()) == 0 ? bits | field.mask() : throw "fields overlap";
  }
  return bits;
}

// The tags distinguish the kinds of words.
static_assert((bits_of({kKind, kDtype, kDeviceType, kDeviceIndex, kRank, kRequiresGrad, kStrideClass, kOnes, kInference}) &
               (kOtherTag | kSharedStorageTag)) == 0);
static_assert((bits_of({kLength, kForm}) & (kOtherTag | kSharedStorageTag)) == 0 && kOtherTag != kSharedStorageTag);
static_assert((bits_of({kSharer, kIsAttribute, kFirst}) & kSharedStorageTag) == 0);
static_assert(bits_of({kGradMode, kInferenceMode, kDeterministic, kWarnOnly, kAutocastCache, kDefaultDtype, kAutocastDtype,
                       kDeviceAutocastDtype}) != 0);

}  // namespace sconce::spec_words
