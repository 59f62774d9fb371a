// What the attributes of a module looked like when their words of an ArgumentSpec were made.
#pragma once

#include <ATen/core/ivalue.h>

#include <array>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

namespace sconce {

// Where an object of a graph was found: the argument, or the slot of another object that holds it.
struct FoundObject {
  const c10::IValue* slot;  // null: the argument
  uint32_t argument;
  const c10::ivalue::Object* object;
};

// Attributes hardly ever change between calls: comparing all that their words say is quicker than making the words again.
// Everything is compared as it is now, and nothing is kept alive: a memo that holds describes the attributes exactly.
class AttributeMemo {
 public:
  // `attributes`: slots of the objects, of type Tensor; `words`: theirs. Null when one of them is no ordinary tensor (it has
  // other words, a gradient function, a forward gradient, a high rank): then the words must be made on each call.
  static std::unique_ptr<const AttributeMemo> make(std::span<const FoundObject> objects,
                                                   std::span<const c10::IValue* const> attributes,
                                                   std::span<const uint64_t> words);

  // Whether making the words would give the same ones. `arguments`: of the graph.
  bool holds(std::span<const c10::IValue> arguments) const;

  uint64_t id() const { return id_; }  // never 0, never the same for two
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
  // One record per attribute, those of rank 0 first: its slot, its TensorImpl, the key set, traits, autograd metadata,
  // sizes.
  std::vector<uint64_t> records_;
  std::array<size_t, 6> count_of_rank_{};
  std::vector<uint64_t> words_;
  uint64_t words_ored_ = 0;
  uint64_t hash_ = 0;
};

}  // namespace sconce
