// Abstract values: what is known about a graph's values, and about the lists it makes, before it runs.
#pragma once

#include "ir/facts.h"

#include <ATen/core/ivalue.h>

#include <cstdint>
#include <memory>
#include <optional>
#include <unordered_map>
#include <variant>
#include <vector>

namespace sconce {

class AbstractValue;
using AbstractValues = std::vector<AbstractValue>;

struct AbstractMapping;

// A list or dict that the graph makes. Two values with one number are the same object.
struct ListId {
  uint32_t number;
  friend bool operator==(ListId, ListId) = default;
};

// Unknown, or one of
//   - an integer, possibly symbolic;
//   - another constant: a number, a string, None;
//   - a tensor with facts;
//   - an immutable sequence (a tuple, a constant list) or mapping;
//   - a list or dict that the graph makes.
class AbstractValue {
 public:
  AbstractValue() = default;  // unknown
  static AbstractValue integer(Dim dim);
  static AbstractValue integer(int64_t number) { return integer(Dim::known(number)); }
  static AbstractValue boolean(std::optional<bool> value);
  // From a constant: a tensor becomes its facts, a list or tuple a sequence, a dict a mapping.
  static AbstractValue constant(const c10::IValue& value);
  static AbstractValue tensor(TensorFacts facts);
  static AbstractValue sequence(AbstractValues elements);
  static AbstractValue mapping(AbstractValues keys, AbstractValues values);
  static AbstractValue list(ListId id);

  bool is_unknown() const { return std::holds_alternative<std::monostate>(value_); }
  // These return nothing or null if the value is of another kind.
  Dim as_integer() const;
  std::optional<int64_t> as_known_integer() const;
  std::optional<bool> as_boolean() const;
  const c10::IValue* as_constant() const { return std::get_if<c10::IValue>(&value_); }
  const TensorFacts* as_tensor() const;
  const AbstractValues* as_sequence() const;
  const AbstractMapping* as_mapping() const;
  const ListId* as_list() const { return std::get_if<ListId>(&value_); }
  bool is_integer() const { return std::holds_alternative<Dim>(value_); }

  friend bool operator==(const AbstractValue& a, const AbstractValue& b);

 private:
  std::variant<std::monostate, Dim, c10::IValue, std::shared_ptr<const TensorFacts>, std::shared_ptr<const AbstractValues>,
               std::shared_ptr<const AbstractMapping>, ListId>
      value_;
};

// An immutable mapping, in order of insertion. Keys are known constants.
struct AbstractMapping {
  AbstractValues keys;
  AbstractValues values;
  friend bool operator==(const AbstractMapping&, const AbstractMapping&) = default;

  // Returns the key's value, or null.
  const AbstractValue* find(const AbstractValue& key) const;
};

// A list or dict: its elements, or else a value that covers each of them. The elements of a dict are its values.
struct AbstractList {
  std::optional<AbstractValues> elements;
  AbstractValue every;                 // covers every element, if `elements` is absent
  std::optional<AbstractValues> keys;  // the keys of a dict that has `elements`
  bool is_escaped = false;             // code outside may change it at any time: nothing is known, now or later
  friend bool operator==(const AbstractList&, const AbstractList&) = default;
};
inline const AbstractList kEscapedList = {.is_escaped = true};

// The lists of a graph at one moment of its evaluation. A branch is evaluated between `begin_branch` and `end_branch`, at a
// cost proportional to what it changes.
class AbstractHeap {
 public:
  using Changes = std::unordered_map<uint32_t, AbstractList>;

  ListId make(AbstractList list);
  // Replaces a list by a new object under the same number: a node in a loop makes a new list in every iteration.
  void remake(ListId id, AbstractList list) { changed(id) = std::move(list); }
  const AbstractList& at(ListId id) const { return lists_[id.number]; }
  void set(ListId id, AbstractList list);

  // Mark as escaped the lists that the value is or contains, or only those that it contains.
  void escape(const AbstractValue& value);
  void escape_contents(const AbstractValue& value);
  // Returns the value with lists replaced by sequences and dicts by mappings. A list of unknown length becomes unknown.
  AbstractValue snapshot(const AbstractValue& value) const;

  // Returns the elements of a sequence or list, in which lists are not replaced. Null if they are not known.
  const AbstractValues* elements_of(const AbstractValue& value) const;

  // Returns the join of both. Lists that are not the same object in both escape, because the result may be either.
  AbstractValue join(const AbstractValue& a, const AbstractValue& b);
  AbstractList join(const AbstractList& a, const AbstractList& b);

  void begin_branch() { branches_.emplace_back(); }
  // Undoes the changes since `begin_branch`, and returns them.
  Changes end_branch();
  void apply(const Changes& changes);
  // Applies the join of the changes of two branches.
  void apply_either(const Changes& a, const Changes& b);

 private:
  AbstractList& changed(ListId id);

  std::vector<AbstractList> lists_;
  std::vector<Changes> branches_;  // for each open branch, the lists it changed, as they were before
};

}  // namespace sconce
