// AttributeMemo: the words of a module's attributes in an ArgumentSpec, and the state of the attributes they describe.
#pragma once

#include <ATen/core/ivalue.h>

#include <array>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

namespace sconce {

// An object that the graph reads from, and where it was found: as an argument, or in a slot of another object.
struct FoundObject {
  const c10::IValue* slot;  // null: the argument
  uint32_t argument;
  const c10::ivalue::Object* object;
};

// Attributes rarely change between calls. Comparing everything that their words describe is quicker than making the words
// again. The comparison reads the current state, and the memo keeps nothing alive. A memo that holds describes the
// attributes exactly.
class AttributeMemo {
 public:
  // Makes a memo. `tensors`: slots of type Tensor of the objects; `constants`: slots whose values are in the words;
  // `words`: the words of both, in this order. Null if one of the tensors is not ordinary (it is exotic, or has a gradient
  // function, a forward gradient or a high rank). The words must then be made in each call.
  static std::unique_ptr<const AttributeMemo> make(std::span<const FoundObject> objects,
                                                   std::span<const c10::IValue* const> tensors,
                                                   std::span<const c10::IValue* const> constants,
                                                   std::span<const uint64_t> words);

  // Returns whether the attributes' words are still these. `arguments`: those of the call.
  bool holds(std::span<const c10::IValue> arguments) const;

  uint64_t id() const { return id_; }  // unique, never 0
  std::span<const uint64_t> words() const { return words_; }
  uint64_t tensors_ored() const { return tensors_ored_; }
  uint64_t hash() const { return hash_; }
  // The slots of each object, in the order of `make`.
  std::span<const c10::IValue* const> slots() const { return slots_; }

 private:
  AttributeMemo(std::span<const FoundObject> objects, std::span<const c10::IValue* const> constants,
                std::span<const uint64_t> words, size_t tensors);
  bool holds_strides() const;
  bool holds_constants() const;

  // The value of an attribute that is no tensor. `kind` is that of the value; `bits` are a number's.
  struct Constant {
    const c10::IValue* slot;
    uint64_t kind;
    uint64_t bits;
  };
  static Constant constant_in(const c10::IValue* slot);

  const uint64_t id_;
  std::vector<FoundObject> objects_;
  std::vector<const c10::IValue*> slots_;
  // One record per attribute, in order of rank: slot, TensorImpl, key set, traits, autograd metadata, sizes.
  std::vector<uint64_t> records_;
  std::array<size_t, 6> count_of_rank_{};
  // The strides of the tensors with dims of one or no elements: their flags do not tell whether these are a new tensor's.
  struct Strides {
    const c10::TensorImpl* tensor;
    std::vector<int64_t> strides;
  };
  std::vector<Strides> strides_;
  std::vector<Constant> constants_;
  std::vector<std::string> texts_;           // of the strings among them, in their order
  std::vector<std::vector<int64_t>> lists_;  // of the lists of integers among them
  std::vector<uint64_t> words_;
  uint64_t tensors_ored_ = 0;  // bitwise or of the words of the tensors
  uint64_t hash_ = 0;
};

}  // namespace sconce
