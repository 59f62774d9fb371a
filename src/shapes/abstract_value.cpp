#include "shapes/abstract_value.h"

#include <algorithm>
#include <bit>

namespace sconce {

// ---- values -----------------------------------------------------------------------------------------------------------

AbstractValue AbstractValue::integer(Dim dim) {
  AbstractValue made;
  if (!dim.is_unknown()) {
    made.value_ = dim;
  }
  return made;
}

AbstractValue AbstractValue::boolean(std::optional<bool> value) {
  AbstractValue made;
  if (value) {
    made.value_ = c10::IValue(*value);
  }
  return made;
}

AbstractValue AbstractValue::constant(const c10::IValue& value) {
  if (value.isInt()) {
    return integer(value.toInt());
  }
  if (value.isTensor()) {
    return tensor(facts_of(value.toTensor()));
  }
  if (value.isList() || value.isTuple()) {
    AbstractValues elements;
    const auto add = [&](const c10::IValue& element) { elements.push_back(constant(element)); };
    if (value.isList()) {
      const c10::List<c10::IValue> list = value.toList();
      for (size_t i = 0; i < list.size(); ++i) {
        add(list.get(i));
      }
    } else {
      for (const c10::IValue& element : value.toTupleRef().elements()) {
        add(element);
      }
    }
    return sequence(std::move(elements));
  }
  if (value.isGenericDict()) {
    AbstractValues keys;
    AbstractValues values;
    for (const auto& entry : value.toGenericDict()) {
      keys.push_back(constant(entry.key()));
      values.push_back(constant(entry.value()));
    }
    return mapping(std::move(keys), std::move(values));
  }
  AbstractValue made;
  if (value.isNone() || value.isBool() || value.isDouble() || value.isString() || value.isDevice()) {
    made.value_ = value;
  }
  return made;
}

AbstractValue AbstractValue::tensor(TensorFacts facts) {
  AbstractValue made;
  made.value_ = std::make_shared<const TensorFacts>(std::move(facts));
  return made;
}

AbstractValue AbstractValue::sequence(AbstractValues elements) {
  AbstractValue made;
  made.value_ = std::make_shared<const AbstractValues>(std::move(elements));
  return made;
}

AbstractValue AbstractValue::mapping(AbstractValues keys, AbstractValues values) {
  AbstractValue made;
  made.value_ = std::make_shared<const AbstractMapping>(AbstractMapping{std::move(keys), std::move(values)});
  return made;
}

AbstractValue AbstractValue::list(ListId id) {
  AbstractValue made;
  made.value_ = id;
  return made;
}

Dim AbstractValue::as_integer() const {
  const auto* dim = std::get_if<Dim>(&value_);
  return dim == nullptr ? Dim::unknown() : *dim;
}

std::optional<int64_t> AbstractValue::as_known_integer() const {
  const Dim dim = as_integer();
  return dim.is_known() ? std::optional(dim.value()) : std::nullopt;
}

std::optional<bool> AbstractValue::as_boolean() const {
  const c10::IValue* value = as_constant();
  return value != nullptr && value->isBool() ? std::optional(value->toBool()) : std::nullopt;
}

const TensorFacts* AbstractValue::as_tensor() const {
  const auto* facts = std::get_if<std::shared_ptr<const TensorFacts>>(&value_);
  return facts == nullptr ? nullptr : facts->get();
}

const AbstractValues* AbstractValue::as_sequence() const {
  const auto* elements = std::get_if<std::shared_ptr<const AbstractValues>>(&value_);
  return elements == nullptr ? nullptr : elements->get();
}

const AbstractMapping* AbstractValue::as_mapping() const {
  const auto* mapping = std::get_if<std::shared_ptr<const AbstractMapping>>(&value_);
  return mapping == nullptr ? nullptr : mapping->get();
}

const AbstractValue* AbstractMapping::find(const AbstractValue& key) const {
  const auto found = std::find(keys.begin(), keys.end(), key);
  return found == keys.end() ? nullptr : &values[static_cast<size_t>(found - keys.begin())];
}

namespace {

// Compares constants. NaN equals NaN here, so that a fixpoint is reached.
bool same_constant(const c10::IValue& a, const c10::IValue& b) {
  if (a.tagKind() != b.tagKind()) {
    return false;
  }
  if (a.isDouble()) {
    return std::bit_cast<uint64_t>(a.toDouble()) == std::bit_cast<uint64_t>(b.toDouble());
  }
  return a.isNone() || (a.isBool() && a.toBool() == b.toBool()) || (a.isString() && a.toStringRef() == b.toStringRef()) ||
         (a.isDevice() && a.toDevice() == b.toDevice());
}

}  // namespace

bool operator==(const AbstractValue& a, const AbstractValue& b) {
  if (const auto* constant = a.as_constant()) {
    return b.as_constant() != nullptr && same_constant(*constant, *b.as_constant());
  }
  if (const auto* facts = a.as_tensor()) {
    return b.as_tensor() != nullptr && (facts == b.as_tensor() || *facts == *b.as_tensor());
  }
  if (const auto* elements = a.as_sequence()) {
    return b.as_sequence() != nullptr && (elements == b.as_sequence() || *elements == *b.as_sequence());
  }
  if (const auto* mapping = a.as_mapping()) {
    return b.as_mapping() != nullptr && (mapping == b.as_mapping() || *mapping == *b.as_mapping());
  }
  return a.value_.index() == b.value_.index() && a.as_integer() == b.as_integer() &&
         (a.as_list() == nullptr || *a.as_list() == *b.as_list());
}

// ---- lists ------------------------------------------------------------------------------------------------------------

ListId AbstractHeap::make(AbstractList list) {
  lists_.emplace_back();
  const ListId id{static_cast<uint32_t>(lists_.size() - 1)};
  remake(id, std::move(list));
  return id;
}

AbstractList& AbstractHeap::changed(ListId id) {
  if (!branches_.empty()) {
    branches_.back().try_emplace(id.number, lists_[id.number]);
  }
  return lists_[id.number];
}

void AbstractHeap::set(ListId id, AbstractList list) {
  if (!lists_[id.number].is_escaped && !(lists_[id.number] == list)) {
    changed(id) = std::move(list);
  }
}

void AbstractHeap::escape(const AbstractValue& value) {
  if (const ListId* id = value.as_list()) {
    if (!lists_[id->number].is_escaped) {
      escape_contents(value);
      changed(*id) = kEscapedList;
    }
  } else if (const AbstractMapping* mapping = value.as_mapping()) {
    for (const AbstractValue& element : mapping->values) {
      escape(element);
    }
  } else if (const AbstractValues* elements = value.as_sequence()) {
    for (const AbstractValue& element : *elements) {
      escape(element);
    }
  }
}

void AbstractHeap::escape_contents(const AbstractValue& value) {
  if (const ListId* id = value.as_list()) {
    const AbstractList list = at(*id);
    escape(list.every);
    for (const AbstractValue& element : list.elements.value_or(AbstractValues())) {
      escape(element);
    }
  } else {
    escape(value);
  }
}

AbstractValue AbstractHeap::snapshot(const AbstractValue& value) const {
  if (const ListId* id = value.as_list()) {
    const AbstractList& list = at(*id);
    return !list.elements ? AbstractValue()
           : list.keys    ? snapshot(AbstractValue::mapping(*list.keys, *list.elements))
                          : snapshot(AbstractValue::sequence(*list.elements));
  }
  const auto copy = [&](const AbstractValues& elements) {
    AbstractValues copies;
    for (const AbstractValue& element : elements) {
      copies.push_back(snapshot(element));
    }
    return copies;
  };
  if (const AbstractMapping* mapping = value.as_mapping()) {
    return AbstractValue::mapping(mapping->keys, copy(mapping->values));
  }
  const AbstractValues* elements = value.as_sequence();
  if (elements == nullptr || std::none_of(elements->begin(), elements->end(), [](const AbstractValue& element) {
        return element.as_list() != nullptr || element.as_sequence() != nullptr || element.as_mapping() != nullptr;
      })) {
    return value;
  }
  return AbstractValue::sequence(copy(*elements));
}

const AbstractValues* AbstractHeap::elements_of(const AbstractValue& value) const {
  const ListId* id = value.as_list();
  return id == nullptr ? value.as_sequence() : at(*id).elements && !at(*id).keys ? &*at(*id).elements : nullptr;
}

AbstractValue AbstractHeap::join(const AbstractValue& a, const AbstractValue& b) {
  if (a == b) {
    return a;
  }
  if (a.as_tensor() != nullptr && b.as_tensor() != nullptr) {
    return AbstractValue::tensor(common_facts(*a.as_tensor(), *b.as_tensor()));
  }
  const AbstractValues* as = a.as_sequence();
  const AbstractValues* bs = b.as_sequence();
  if (as != nullptr && bs != nullptr && as->size() == bs->size()) {
    AbstractValues joined;
    for (size_t i = 0; i < as->size(); ++i) {
      joined.push_back(join((*as)[i], (*bs)[i]));
    }
    return AbstractValue::sequence(std::move(joined));
  }
  const AbstractMapping* am = a.as_mapping();
  const AbstractMapping* bm = b.as_mapping();
  if (am != nullptr && bm != nullptr && am->keys == bm->keys) {
    AbstractValues joined;
    for (size_t i = 0; i < am->values.size(); ++i) {
      joined.push_back(join(am->values[i], bm->values[i]));
    }
    return AbstractValue::mapping(am->keys, std::move(joined));
  }
  escape(a);
  escape(b);
  return {};
}

AbstractList AbstractHeap::join(const AbstractList& a, const AbstractList& b) {
  if (a.is_escaped || b.is_escaped) {
    return kEscapedList;
  }
  AbstractList joined;
  if (a.elements && b.elements && a.elements->size() == b.elements->size() && a.keys == b.keys) {
    joined.keys = a.keys;
    joined.elements.emplace();
    for (size_t i = 0; i < a.elements->size(); ++i) {
      joined.elements->push_back(join((*a.elements)[i], (*b.elements)[i]));
    }
    return joined;
  }
  std::optional<AbstractValue> every;
  for (const AbstractList* list : {&a, &b}) {
    const AbstractValues all = list->elements ? *list->elements : AbstractValues{list->every};
    for (const AbstractValue& element : all) {
      every = every ? join(*every, element) : element;
    }
  }
  joined.every = every.value_or(AbstractValue());
  return joined;
}

AbstractHeap::Changes AbstractHeap::end_branch() {
  Changes before = std::move(branches_.back());
  branches_.pop_back();
  Changes after;
  for (auto& [number, list] : before) {
    after.emplace(number, std::exchange(lists_[number], std::move(list)));
  }
  return after;
}

void AbstractHeap::apply(const Changes& changes) {
  for (const auto& [number, list] : changes) {
    set(ListId{number}, list);
  }
}

void AbstractHeap::apply_either(const Changes& a, const Changes& b) {
  for (const auto& [number, list] : a) {
    const auto other = b.find(number);
    AbstractList joined = join(list, other != b.end() ? other->second : lists_[number]);
    set(ListId{number}, std::move(joined));
  }
  for (const auto& [number, list] : b) {
    if (a.count(number) == 0) {
      AbstractList joined = join(lists_[number], list);
      set(ListId{number}, std::move(joined));
    }
  }
}

}  // namespace sconce
