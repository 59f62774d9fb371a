// The operators on dicts, for AbstractEvaluator.
#include "shapes/abstract_evaluator.h"

#include <ATen/core/jit_type.h>

namespace sconce {
namespace {

bool is_key(const AbstractValue& value) {
  const c10::IValue* constant = value.as_constant();
  return value.as_known_integer() || (constant != nullptr && (constant->isString() || constant->isBool()));
}

void store(AbstractMapping& mapping, const AbstractValue& key, const AbstractValue& value) {
  if (const AbstractValue* known = mapping.find(key)) {
    mapping.values[static_cast<size_t>(known - mapping.values.data())] = value;
  } else {
    mapping.keys.push_back(key);
    mapping.values.push_back(value);
  }
}

AbstractList list_of(AbstractMapping mapping) {
  return {.elements = std::move(mapping.values), .keys = std::move(mapping.keys)};
}

}  // namespace

void AbstractEvaluator::make_dict(const Node& node) {
  AbstractMapping made;
  bool is_known = true;
  for (size_t i = 0; i + 1 < node.inputs().size(); i += 2) {
    const AbstractValue& key = at(*node.input(i));
    is_known = is_known && is_key(key);
    store(made, key, at(*node.input(i + 1)));
  }
  if (!is_known) {
    for (const AbstractValue& value : made.values) {
      heap_.escape(value);
    }
  }
  make_list(*node.output(), is_known ? list_of(std::move(made)) : kEscapedList);
}

bool AbstractEvaluator::run_dict_operator(const Node& node) {
  if (node.opcode() == Opcode::kMakeDict && node.inputs().empty()) {
    make_dict(node);
    return true;
  }
  if (node.inputs().empty() || node.input(0)->type()->kind() != c10::TypeKind::DictType) {
    return false;
  }
  const AbstractValue dict = at(*node.input(0));
  const ListId* id = dict.as_list();
  const AbstractValue every = id == nullptr ? AbstractValue() : heap_.at(*id).every;
  std::optional<AbstractMapping> mapping;  // with the lists themselves among its values
  if (dict.as_mapping() != nullptr) {
    mapping = *dict.as_mapping();
  } else if (id != nullptr && heap_.at(*id).keys) {
    mapping = AbstractMapping{*heap_.at(*id).keys, *heap_.at(*id).elements};
  }
  const AbstractValue key = node.inputs().size() > 1 ? at(*node.input(1)) : AbstractValue();
  const AbstractValue* found = mapping && is_key(key) ? mapping->find(key) : nullptr;
  switch (node.opcode()) {
    case Opcode::kGetItem: set(node.output(), found != nullptr ? *found : mapping ? AbstractValue() : every); return true;
    case Opcode::kContains: {
      const bool is_known = mapping && is_key(key);
      set(node.output(), is_known ? AbstractValue::boolean(found != nullptr) : AbstractValue());
      return true;
    }
    case Opcode::kSetItem: {
      if (id == nullptr) {
        return false;
      }
      put_into_container(at(*node.input(2)));
      if (mapping && is_key(key)) {
        store(*mapping, key, at(*node.input(2)));
        heap_.set(*id, list_of(std::move(*mapping)));
      } else {
        heap_.set(*id, heap_.join(AbstractList(heap_.at(*id)), {.elements = AbstractValues{at(*node.input(2))}}));
      }
      return true;
    }
    case Opcode::kKeys:
    case Opcode::kValues: {
      if (!mapping) {
        return false;
      }
      make_list(*node.output(), {.elements = node.opcode() == Opcode::kKeys ? mapping->keys : mapping->values});
      return true;
    }
    case Opcode::kCopyContainer: {
      if (!mapping) {
        return false;
      }
      make_list(*node.output(), list_of(std::move(*mapping)));
      return true;
    }
    default: break;
  }
  if (node.opcode() == Opcode::kGetOrDefault && mapping && is_key(key)) {
    const bool has_default = node.inputs().size() > 2;
    set(node.output(), found != nullptr ? *found
                       : has_default    ? at(*node.input(2))
                                        : AbstractValue::constant(c10::IValue()));
    return true;
  }
  if (node.opcode() == Opcode::kItems && mapping) {
    AbstractValues items;
    for (size_t i = 0; i < mapping->keys.size(); ++i) {
      items.push_back(AbstractValue::sequence({mapping->keys[i], mapping->values[i]}));
    }
    make_list(*node.output(), {.elements = std::move(items)});
    return true;
  }
  if (node.opcode() == Opcode::kDelete && id != nullptr && found != nullptr) {
    const auto position = found - mapping->values.data();
    mapping->keys.erase(mapping->keys.begin() + position);
    mapping->values.erase(mapping->values.begin() + position);
    heap_.set(*id, list_of(std::move(*mapping)));
    return true;
  }
  return false;
}

}  // namespace sconce
