// What is known about the values of a graph before it runs, and about the lists it makes.
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

// A list or dict that the graph makes, by number: two values with the same number are the same object.
struct ListId {
  uint32_t number;
  friend bool operator==(ListId, ListId) = default;
};

// Unknown, or one of: an integer, another constant number, string or None, a tensor of known facts, elements in a row that
// nobody changes (a tuple, a constant list), a mapping that nobody changes, a list or dict.
class AbstractValue {
 public:
  AbstractValue() = default;  // unknown
  static AbstractValue integer(Dim dim);
  static AbstractValue integer(int64_t number) { return integer(Dim::known(number)); }
  static AbstractValue boolean(std::optional<bool> value);
  // Of any constant: tensors become their facts, lists and tuples their elements, dicts mappings.
  static AbstractValue constant(const c10::IValue& value);
  static AbstractValue tensor(TensorFacts facts);
  static AbstractValue sequence(AbstractValues elements);
  static AbstractValue mapping(AbstractValues keys, AbstractValues values);
  static AbstractValue list(ListId id);

  bool is_unknown() const { return std::holds_alternative<std::monostate>(value_); }
  // Each empty or null when the value is something else.
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

// In the order in which the keys came in. Keys are known numbers, strings and the like.
struct AbstractMapping {
  AbstractValues keys;
  AbstractValues values;
  friend bool operator==(const AbstractMapping&, const AbstractMapping&) = default;

  // Null when the key is not among them.
  const AbstractValue* find(const AbstractValue& key) const;
};

// What is known about one list: its elements, or else what holds for every one of them. Of a dict these are its values.
struct AbstractList {
  std::optional<AbstractValues> elements;
  AbstractValue every;                 // without `elements`
  std::optional<AbstractValues> keys;  // of a dict with `elements`
  bool is_escaped = false;             // others may change it at any time: nothing is known, now or later
  friend bool operator==(const AbstractList&, const AbstractList&) = default;
};
inline const AbstractList kEscapedList = {.is_escaped = true};

// The lists of a graph at one moment of its run. A branch is tried out between `begin_branch` and `end_branch`, which costs
// what the branch changes, not what there is.
class AbstractHeap {
 public:
  using Changes = std::unordered_map<uint32_t, AbstractList>;

  ListId make(AbstractList list);
  // The same object anew: a node that makes a list in a loop makes another in every iteration.
  void remake(ListId id, AbstractList list) { changed(id) = std::move(list); }
  const AbstractList& at(ListId id) const { return lists_[id.number]; }
  void set(ListId id, AbstractList list);

  // Others may hold and change the lists that the value is or contains; those only that it contains.
  void escape(const AbstractValue& value);
  void escape_contents(const AbstractValue& value);
  // With the elements of lists in the place of lists, and mappings in that of dicts; a list of unknown length is unknown.
  AbstractValue snapshot(const AbstractValue& value) const;

  // Of a sequence or list: lists among them are still such. Null where they are not known.
  const AbstractValues* elements_of(const AbstractValue& value) const;

  // What holds for both. Lists that are not the same object in both escape: the result may be either.
  AbstractValue join(const AbstractValue& a, const AbstractValue& b);
  AbstractList join(const AbstractList& a, const AbstractList& b);

  void begin_branch() { branches_.emplace_back(); }
  // Takes back what was changed since `begin_branch` and returns it as it was at the end.
  Changes end_branch();
  void apply(const Changes& changes);
  // Whichever of two branches was run.
  void apply_either(const Changes& a, const Changes& b);

 private:
  AbstractList& changed(ListId id);

  std::vector<AbstractList> lists_;
  std::vector<Changes> branches_;  // of each open branch, the changed lists as they were before
};

}  // namespace sconce
