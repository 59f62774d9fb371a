#include "ir/refusal.h"
#include "plan/steps/steps.h"

#include <ATen/core/class_type.h>
#include <ATen/core/dynamic_type.h>
#include <ATen/core/ivalue.h>
#include <ATen/core/jit_type.h>

#include <stdexcept>
#include <utility>

namespace sconce {
namespace {

// One use of a construct in a graph, which the plan keeps alive.
struct Construct {
  const Node& node;
  Operands operands;
  Registers results;
};

// A step that computes results from operands with a function of the frame, which implements the construct.
template <typename Run>
class LanguageStep final : public Step {
 public:
  LanguageStep(Construct of, Run run) : Step(true), of_(std::move(of)), run_(std::move(run)) {}
  void run(Frame& frame) const override { run_(frame); }
  bool reads_gradients(const Frame& /*frame*/) const override { return false; }
  // With the construct's names: `prim::GetAttr[weight] %1 -> %2`.
  std::string describe() const override {
    const std::string kind = of_.node.kind().toQualString();
    const bool is_named = of_.node.attribute(attr::kName) != nullptr;
    return describe_step(is_named ? kind + "[" + of_.node.attribute_as<std::string>(attr::kName) + "]" : kind, of_.operands,
                         of_.results);
  }

 private:
  Construct of_;
  Run run_;
};

template <typename Run>
StepPtr language_step(const Construct& of, Run run) {
  return std::make_unique<LanguageStep<Run>>(of, std::move(run));
}

StepPtr construct_list(const Construct& of) {
  const c10::TypePtr element = of.node.output()->type()->expectRef<c10::ListType>().getElementType();
  return language_step(of, [=, operands = of.operands, result = of.results[0]](Frame& frame) {
    c10::impl::GenericList list(element);
    list.reserve(operands.size());
    for (const Operand operand : operands) {
      list.push_back(take(frame, operand));
    }
    frame[result] = std::move(list);
  });
}

StepPtr construct_tuple(const Construct& of) {
  const auto type = of.node.output()->type()->expect<c10::TupleType>();
  const bool is_named = type->name().has_value();
  return language_step(of, [=, operands = of.operands, result = of.results[0]](Frame& frame) {
    std::vector<c10::IValue> elements;
    elements.reserve(operands.size());
    for (const Operand operand : operands) {
      elements.push_back(take(frame, operand));
    }
    frame[result] = is_named ? c10::ivalue::Tuple::createNamed(std::move(elements), type)
                             : c10::ivalue::Tuple::create(std::move(elements));
  });
}

StepPtr construct_dict(const Construct& of) {
  const auto& type = of.node.output()->type()->expectRef<c10::DictType>();
  return language_step(of, [=, operands = of.operands, result = of.results[0], key_type = type.getKeyType(),
                            value_type = type.getValueType()](Frame& frame) {
    c10::impl::GenericDict dict(key_type, value_type);
    dict.reserve(operands.size() / 2);
    for (size_t i = 0; i + 1 < operands.size(); i += 2) {
      c10::IValue key = take(frame, operands[i]);
      dict.insert_or_assign(std::move(key), take(frame, operands[i + 1]));
    }
    frame[result] = std::move(dict);
  });
}

StepPtr unpack_list(const Construct& of) {
  return language_step(of, [=, list = of.operands[0], results = of.results](Frame& frame) {
    const c10::IValue value = take(frame, list);
    const auto elements = value.toListRef();
    TORCH_CHECK(elements.size() == results.size(), "Expected ", results.size(), " elements in a list but found ",
                elements.size());
    for (size_t i = 0; i < results.size(); ++i) {
      frame[results[i]] = elements[i];
    }
  });
}

StepPtr unpack_tuple(const Construct& of) {
  return language_step(of, [=, tuple = of.operands[0], results = of.results](Frame& frame) {
    const c10::IValue value = take(frame, tuple);
    const auto& elements = value.toTupleRef().elements();
    TORCH_CHECK(elements.size() == results.size(), "Expected ", results.size(), " elements in a tuple but found ",
                elements.size());
    for (size_t i = 0; i < results.size(); ++i) {
      frame[results[i]] = elements[i];
    }
  });
}

StepPtr index_tuple(const Construct& of) {
  return language_step(of, [=, tuple = of.operands[0], index = of.operands[1], result = of.results[0]](Frame& frame) {
    const c10::IValue value = take(frame, tuple);
    const auto& elements = value.toTupleRef().elements();
    const int64_t position = frame[index.index].toInt();
    const int64_t size = static_cast<int64_t>(elements.size());
    const int64_t from_front = position < 0 ? position + size : position;
    if (from_front < 0 || from_front >= size) {
      throw std::out_of_range("Tuple list index out of range");
    }
    frame[result] = elements[static_cast<size_t>(from_front)];
  });
}

StepPtr slice_tuple(const Construct& of) {
  const int64_t begin = of.node.attribute_as<int64_t>(c10::attr::beg);
  const int64_t end = of.node.attribute_as<int64_t>(c10::attr::end);
  return language_step(of, [=, tuple = of.operands[0], result = of.results[0]](Frame& frame) {
    const c10::IValue value = take(frame, tuple);
    const auto& elements = value.toTupleRef().elements();
    std::vector<c10::IValue> slice;
    for (int64_t i = begin; i < end; ++i) {
      slice.push_back(elements[static_cast<size_t>(i)]);
    }
    frame[result] = c10::ivalue::Tuple::create(std::move(slice));
  });
}

Expected<StepPtr> get_attribute(const Construct& of) {
  const auto type = of.node.input(0)->type()->cast<c10::ClassType>();
  const std::string& name = of.node.attribute_as<std::string>(attr::kName);
  const auto slot = type ? type->findAttributeSlot(name) : std::nullopt;
  if (!slot) {
    return refusal_of(of.node, "the object's class has no attribute '" + name + "' that sconce can see");
  }
  return language_step(of, [=, object = of.operands[0], result = of.results[0], slot = *slot](Frame& frame) {
    const c10::IValue value = take(frame, object);
    frame[result] = value.toObjectRef().getSlot(slot);
  });
}

Expected<StepPtr> set_attribute(const Construct& of) {
  const auto type = of.node.input(0)->type()->cast<c10::ClassType>();
  const std::string& name = of.node.attribute_as<std::string>(attr::kName);
  const auto slot = type ? type->findAttributeSlot(name) : std::nullopt;
  if (!slot) {
    return refusal_of(of.node, "the object's class has no attribute '" + name + "' that sconce can see");
  }
  return language_step(of, [=, object = of.operands[0], value = of.operands[1], slot = *slot](Frame& frame) {
    c10::IValue stored = take(frame, value);
    take(frame, object).toObject()->setSlot(slot, std::move(stored));
  });
}

StepPtr create_object(const Construct& of) {
  const auto type = of.node.output()->type()->expect<c10::ClassType>();
  return language_step(of, [=, result = of.results[0]](Frame& frame) {
    frame[result] = c10::ivalue::Object::create(c10::StrongTypePtr(type->compilation_unit(), type), type->numAttributes());
  });
}

StepPtr is_instance(const Construct& of) {
  const auto types = of.node.attribute_as<std::vector<c10::TypePtr>>(attr::kTypes);
  return language_step(of, [=, operand = of.operands[0], result = of.results[0]](Frame& frame) {
    const c10::TypePtr type = take(frame, operand).type<c10::Type>();
    bool matches = false;
    for (const c10::TypePtr& candidate : types) {
      matches = matches || type->isSubtypeOf(*candidate);
    }
    frame[result] = matches;
  });
}

}  // namespace

Expected<StepPtr> make_language_step(const Node& node, Operands operands, Registers results) {
  const Construct of{node, std::move(operands), std::move(results)};
  switch (node.opcode()) {
    case Opcode::kListConstruct: return construct_list(of);
    case Opcode::kTupleConstruct: return construct_tuple(of);
    case Opcode::kDictConstruct: return construct_dict(of);
    case Opcode::kListUnpack: return unpack_list(of);
    case Opcode::kTupleUnpack: return unpack_tuple(of);
    case Opcode::kTupleIndex: return index_tuple(of);
    case Opcode::kTupleSlice: return slice_tuple(of);
    case Opcode::kGetAttr: return get_attribute(of);
    case Opcode::kSetAttr: return set_attribute(of);
    case Opcode::kCreateObject: return create_object(of);
    case Opcode::kIsInstance: return is_instance(of);
    case Opcode::kUncheckedCast: return make_move_step(of.operands, of.results);
    case Opcode::kUninitialized:
      return language_step(of, [result = of.results[0]](Frame& frame) { frame[result] = c10::IValue::uninitialized(); });
    default: return refusal_of(node, std::string(node.kind().toQualString()) + " is not supported yet");
  }
}

}  // namespace sconce
