// ArgumentSpec: what a plan may rely on about the arguments of a call, as a short string of words. It is the key of the plan
// cache, quick to make and to compare, and the only source of the facts that a specialized plan assumes (facts_of_spec.h).
//
// A tensor has one 64-bit word (fields.h has the table):
//
//    63      48 47 46            31 30   28 27 26   21 20       13 12     8 7    2 1  0
//   ┌──────────┬──┬────────────────┬───────┬──┬───────┬───────────┬────────┬──────┬────┐
//   │ 0        │in│ dims of size 1 │ class │rg│ rank  │ device +1 │ device │ dtype│kind│
//   └──────────┴──┴────────────────┴───────┴──┴───────┴───────────┴────────┴──────┴────┘
//     kind    0 none, 1 undefined, 2 plain, 3 exotic
//     class   how the strides lie: see StrideClass
//     rg      requires_grad
//     in      inference tensor
//
//     exotic tensor   (sparse, quantized, conjugate or negative bit, functorch, subclass, forward-mode dual, wrapped number,
//                     rank above 16; rule R10): its word, then a word with its key set
//     tuple, list,    a word with the kind and the length, then the elements; one word `long` for more than 64 elements. A
//     dict            list of numbers has the first word only
//     optional        a `none` word for None; a `present` word for a number or string
//     number, string  no word for an argument. For an attribute that the graph does not assign: its value
//     integers        of a list that is such an attribute, and that the graph does not write: their number, then the values
//     parameter       its word as a tensor, and a word `sizes` with its sizes after those of all attributes of type Tensor
//
// The words are in this order:
//   1. the state of the thread and the process: grad mode, inference mode, determinism, default dtype, the dtypes of
//   autocast,
//      and dispatch keys, which include the autocast state. The precision of matrix products is left out: operators and
//      kernels read it when they run, and no fact depends on it.
//   2. attributes of type Tensor that the graph does not assign, the sizes of the parameters among them, then attributes
//      whose values are words. They rarely change, so their words are kept from call to call (attribute_memo.h).
//   3. the arguments, then other attributes.
//   4. if the graph writes to arguments, the tensors that lie in the storage of an argument.
#pragma once

#include "analysis/memory/assigned_attributes.h"
#include "ir/graph.h"

#include <ATen/core/ivalue.h>
#include <c10/util/SmallVector.h>

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

namespace sconce {

enum class StrideClass : uint8_t {
  kOther = 0,
  kContiguous = 1,  // the strides of a new tensor
  kChannelsLast = 2,
  kChannelsLast3d = 3,
  kDense = 4,
  kNearlyContiguous = 5,  // contiguous, with other strides in dims of one element, or without elements
};

// The key of one call. A thread reuses it from call to call, so that making a spec does not allocate once it has grown.
class ArgumentSpec {
 public:
  std::span<const uint64_t> words() const { return {words_.data(), size_}; }
  uint64_t hash() const { return hash_; }
  // Returns whether a tensor requires a gradient, or may do so because the graph reads values that the spec cannot cover.
  bool requires_grad() const { return requires_grad_; }
  bool has_exotic() const { return exotic_; }
  // Returns the identity of a weight that the graph reads, the same one in each call of a module; null if it reads none.
  const void* weight() const { return weight_; }

 private:
  friend class SpecWriter;
  friend class ArgumentSpecCreator;
  std::vector<uint64_t> words_;  // words_.size() is the capacity
  size_t size_ = 0;
  uint64_t hash_ = 0;
  uint64_t memo_ = 0;  // the AttributeMemo whose words follow those of the state
  bool requires_grad_ = false;
  bool exotic_ = false;
  const void* weight_ = nullptr;
};

// Describes a spec for `explain`: "grad mode; Float(*, 1) requires_grad; Long() x2". Different specs of ranks have
// different texts.
std::string describe_spec(std::span<const uint64_t> words);

// Makes the specs of a graph's calls. Determines once which arguments hold tensors, and which attributes of module objects
// the graph reads.
class ArgumentSpecCreator {
 public:
  // `graph`: calls inlined.
  explicit ArgumentSpecCreator(const Graph& graph);
  ~ArgumentSpecCreator();

  // Makes the spec of a call. `arguments`: one value per input of the graph. Takes tens of ns for a few tensors, and no
  // lock.
  void create(std::span<const c10::IValue> arguments, ArgumentSpec& spec) const;

  // Returns the sizes of a call that its words leave open, in the order of the words. As examples they help to derive facts
  // (facts_of_spec.h), and no fact depends on them.
  std::vector<int64_t> symbolic_sizes(std::span<const c10::IValue> arguments) const;

  // Returns the number of attributes that are read in each call, for tests and benchmarks.
  size_t attribute_count() const { return tensors_.size() + constants_.size() + others_.size(); }

 private:
  friend class SpecFacts;
  struct Memos;
  // An object whose attributes are read: an argument of the graph, or an attribute of an object before it in the list.
  struct ObjectRead {
    bool is_argument;
    uint32_t owner;  // index of the argument, or of the object that holds this one
    uint32_t slot;   // slot of the owner
  };
  struct AttributeRead {
    uint32_t object;  // index among the objects
    uint32_t slot;
    bool is_parameter = false;  // of the module: its sizes are part of the spec
  };
  struct Changes;
  bool collect_reads(const std::vector<const Value*>& object, ObjectRead read, const Changes& changes);
  void collect_read(const Node& get, AttributeRead read, const Changes& changes);
  using Slots = c10::SmallVector<const c10::IValue*, 64>;
  void find_slots(std::span<const c10::IValue> arguments, Slots& slots) const;
  const void* weight_in(std::span<const c10::IValue* const> slots) const;
  void remember(std::span<const c10::IValue> arguments, std::span<const c10::IValue* const> slots,
                std::span<const uint64_t> words) const;
  static std::vector<const c10::IValue*> find_all(const std::vector<AttributeRead>& reads,
                                                  std::span<const c10::IValue* const> slots,
                                                  std::vector<const c10::IValue*> found = {});

  std::vector<uint32_t> values_;  // indices of arguments that are not objects and may hold tensors
  std::vector<ObjectRead> objects_;
  std::vector<AttributeRead> tensors_;    // attributes of type Tensor that the graph does not assign
  size_t weight_ = 0;                     // the first parameter among them, or 0
  std::vector<AttributeRead> constants_;  // attributes whose values are in the spec
  std::vector<AttributeRead> others_;     // other attributes that may hold tensors
  bool sees_everything_ = true;           // false if the use of an object cannot be followed
  bool writes_inputs_ = false;            // if true, the spec includes which tensors share storage with an argument
  std::unique_ptr<Memos> memos_;
};

}  // namespace sconce
