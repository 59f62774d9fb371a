// AttributeMemo: the words of a module's attributes in an ArgumentSpec, and the state of the attributes they describe.
#pragma once

#include <ATen/core/ivalue.h>

#include <array>
#include <cstdint>
#include <memory>
#include <span>
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
  // Makes a memo. `attributes`: slots of type Tensor of the objects; `words`: their words. Null if an attribute is not an
  // ordinary tensor (it is exotic, or has a gradient function, a forward gradient or a high rank). The words must then be
  // made in each call.
  static std::unique_ptr<const AttributeMemo> make(std::span<const FoundObject> objects,
                                                   std::span<const c10::IValue* const> attributes,
                                                   std::span<const uint64_t> words);

  // Returns whether the attributes' words are still these. `arguments`: those of the call.
  bool holds(std::span<const c10::IValue> arguments) const;

  uint64_t id() const { return id_; }  // unique, never 0
  std::span<const uint64_t> words() const { return words_; }
  uint64_t words_ored() const { return words_ored_; }
  uint64_t hash() const { return hash_; }
  // The slots of each object, in the order of `make`.
  std::span<const c10::IValue* const> slots() const { return slots_; }

 private:
  AttributeMemo(std::span<const FoundObject> objects, std::span<const uint64_t> words);

  const uint64_t id_;
  std::vector<FoundObject> objects_;
  std::vector<const c10::IValue*> slots_;
  // One record per attribute, in order of rank: slot, TensorImpl, key set, traits, autograd metadata, sizes.
  std::vector<uint64_t> records_;
  std::array<size_t, 6> count_of_rank_{};
  std::vector<uint64_t> words_;
  uint64_t words_ored_ = 0;
  uint64_t hash_ = 0;
};

}  // namespace sconce
