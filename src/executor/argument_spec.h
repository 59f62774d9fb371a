// What a plan may rely on about the arguments of a call, as a short string of words that is quick to make and compare.
//
// Rank tier, one 64-bit word per tensor:
//
//    63          47 46            31 30   28 27 26   21 20       13 12     8 7    2 1  0
//   ┌──────────────┬────────────────┬───────┬──┬───────┬───────────┬────────┬──────┬────┐
//   │ 0            │ dims of size 1 │ class │rg│ rank  │ device +1 │ device │ dtype│kind│
//   └──────────────┴────────────────┴───────┴──┴───────┴───────────┴────────┴──────┴────┘
//     kind    0 none, 1 undefined, 2 plain, 3 exotic
//     class   how the strides lie: see StrideClass
//     rg      requires_grad
//
// An exotic tensor (sparse, quantised, conjugate or negative bit, functorch, subclass, forward-mode dual, rank above 16;
// rule R10) is followed by a word with its key set. A list or dict is a word with its length, then its elements; an
// optional that is None is a `none` word; numbers and strings leave no word. Before the tensors stand the words of the
// thread's and the process's state: grad mode, inference mode, determinism, precision, default dtype, dispatch keys
// (which hold the autocast state). The shape tier adds sizes and strides behind each tensor.
#pragma once

#include "ir/graph.h"

#include <ATen/core/ivalue.h>

#include <cstdint>
#include <span>
#include <string>
#include <vector>

namespace sconce {

enum class StrideClass : uint8_t { kOther = 0, kContiguous = 1, kChannelsLast = 2, kChannelsLast3d = 3, kDense = 4 };

// Reused from call to call by one thread: making a spec allocates nothing once it has grown.
struct ArgumentSpec {
  std::vector<uint64_t> words;
  uint64_t hash = 0;
  bool requires_grad = false;  // some tensor requires a gradient, or what the graph reads could not all be seen
  bool exotic = false;         // some tensor is exotic
};

// In words, for `explain`: "grad; Float(*, 3:1) contiguous, Long()". The inverse of making it, as far as words go.
std::string describe_spec(std::span<const uint64_t> words);

// Derived from a graph once: knows which arguments hold tensors and which attributes of module objects the graph reads.
class ArgumentSpecCreator {
 public:
  enum class Detail { kRanks, kShapes };

  // `graph`: calls inlined.
  explicit ArgumentSpecCreator(const Graph& graph);

  // `arguments`: one value per input of the graph. Takes tens of ns for a handful of tensors; no locks.
  void create(std::span<const c10::IValue> arguments, Detail detail, ArgumentSpec& spec) const;

  // How many attributes are read on each call, for tests and benchmarks.
  size_t attribute_count() const { return attribute_count_; }

 private:
  // The attributes that are read of one object, as a tree: attributes()[slot] is visited, and its own attributes.
  struct ObjectReads {
    std::vector<size_t> tensors;  // slots that are read as values
    std::vector<std::pair<size_t, ObjectReads>> objects;
  };
  struct Input {
    bool is_object = false;
    bool holds_tensors = false;
    ObjectReads reads;
  };
  bool collect_reads(const Value& object, ObjectReads& reads);

  std::vector<Input> inputs_;
  bool sees_everything_ = true;  // false: an object is used in a way that cannot be followed
  bool writes_inputs_ = false;   // then it matters which arguments share storage
  size_t attribute_count_ = 0;
};

}  // namespace sconce
