// What a plan may rely on about the arguments of a call, as a short string of words that is quick to make and compare.
//
// Rank level, one 64-bit word per tensor (fields.h has the table):
//
//    63          47 46            31 30   28 27 26   21 20       13 12     8 7    2 1  0
//   ┌──────────────┬────────────────┬───────┬──┬───────┬───────────┬────────┬──────┬────┐
//   │ 0            │ dims of size 1 │ class │rg│ rank  │ device +1 │ device │ dtype│kind│
//   └──────────────┴────────────────┴───────┴──┴───────┴───────────┴────────┴──────┴────┘
//     kind    0 none, 1 undefined, 2 plain, 3 exotic
//     class   how the strides lie: see StrideClass
//     rg      requires_grad
//
// An exotic tensor (sparse, quantized, conjugate or negative bit, functorch, subclass, forward-mode dual, wrapped number,
// rank above 16; rule R10) is followed by a word with its key set. A list or dict is a word with its length, then its
// elements, or one word `long` when it has more than 64; an optional that is None is a `none` word; a number or string
// leaves no word where it must be one, and a `present` word where it could be None.
//
// First stand the words of the thread's and the process's state: grad mode, inference mode, determinism, default dtype,
// dispatch keys (which hold the autocast state). The precision of matrix products is not among it: operators ask for it
// when they run, and no plan is specialized on it. Then come the attributes of type Tensor, which hardly change, so that
// their words are kept from call to call (attribute_memo.h), then all others. The shape level adds sizes and strides behind
// each tensor.
#pragma once

#include "ir/graph.h"

#include <ATen/core/ivalue.h>

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

namespace sconce {

enum class StrideClass : uint8_t { kOther = 0, kContiguous = 1, kChannelsLast = 2, kChannelsLast3d = 3, kDense = 4 };

// Reused from call to call by one thread: making a spec allocates nothing once it has grown.
class ArgumentSpec {
 public:
  std::span<const uint64_t> words() const { return {words_.data(), size_}; }
  uint64_t hash() const { return hash_; }
  // Some tensor requires a gradient, or what the graph reads could not all be seen.
  bool requires_grad() const { return requires_grad_; }
  bool has_exotic() const { return exotic_; }

 private:
  friend class SpecWriter;
  friend class ArgumentSpecCreator;
  std::vector<uint64_t> words_;  // its size is what has been allocated
  size_t size_ = 0;
  uint64_t hash_ = 0;
  uint64_t memo_ = 0;  // the AttributeMemo whose words stand behind the state's
  bool requires_grad_ = false;
  bool exotic_ = false;
};

// In words, for `explain`: "grad; Float(*, 3:1) contiguous, Long()". The inverse of making it, as far as words go.
std::string describe_spec(std::span<const uint64_t> words);

// Derived from a graph once: knows which arguments hold tensors and which attributes of module objects the graph reads.
class ArgumentSpecCreator {
 public:
  enum class Detail { kRanks, kShapes };

  // `graph`: calls inlined.
  explicit ArgumentSpecCreator(const Graph& graph);
  ~ArgumentSpecCreator();

  // `arguments`: one value per input of the graph. Takes tens of ns for a handful of tensors; no locks.
  void create(std::span<const c10::IValue> arguments, Detail detail, ArgumentSpec& spec) const;

  // How many attributes are read on each call, for tests and benchmarks.
  size_t attribute_count() const { return tensors_.size() + others_.size(); }

 private:
  struct Memos;
  // An object whose attributes are read: an argument of the graph, or an attribute of an object before it in the list.
  struct ObjectRead {
    bool is_argument;
    uint32_t owner;  // index of the argument, or of the owner among the objects
    uint32_t slot;   // of the owner
  };
  struct AttributeRead {
    uint32_t object;  // index among the objects
    uint32_t slot;
  };
  bool collect_reads(const std::vector<const Value*>& object, ObjectRead read);
  void remember(std::span<const c10::IValue> arguments, std::span<const c10::IValue* const> slots,
                const ArgumentSpec& spec) const;

  std::vector<uint32_t> values_;  // indices of the arguments that are not objects and may hold tensors
  std::vector<ObjectRead> objects_;
  std::vector<AttributeRead> tensors_;  // attributes of type Tensor
  std::vector<AttributeRead> others_;   // attributes of other types that may hold tensors
  bool sees_everything_ = true;         // false: an object is used in a way that cannot be followed
  bool writes_inputs_ = false;          // then it matters which arguments share storage
  std::unique_ptr<Memos> memos_;
};

}  // namespace sconce
