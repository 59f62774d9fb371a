#include "executor/argument_spec/specialize_types.h"

#include "analysis/assigned_attributes.h"
#include "base/assert.h"
#include "executor/argument_spec/fields.h"
#include "executor/argument_spec/writer.h"

#include <ATen/core/Tensor.h>
#include <ATen/core/class_type.h>
#include <ATen/core/jit_type.h>
#include <ATen/native/quantized/PackedParams.h>
#include <c10/core/GradMode.h>

namespace sconce {
namespace {

// Returns the facts of an object that holds packed weights: a tuple of weight and bias. Unknown for other objects.
AbstractValue packed_weights(const c10::ivalue::Object& object) {
  const auto holder = object.slots().empty() || !object.getSlot(0).isCapsule() ? nullptr : object.getSlot(0).toCapsule();
  auto* linear = dynamic_cast<LinearPackedParamsBase*>(holder.get());
  if (linear == nullptr) {
    return {};
  }
  const auto [weight, bias] = linear->unpack();
  return AbstractValue::sequence({AbstractValue::constant(weight), AbstractValue::constant(bias)});
}

enum class Origin { kArgument, kAttribute };

class Specialization {
 public:
  Specialization(Graph& graph, ArgumentSpecCreator::Detail detail)
      : exact_(detail == ArgumentSpecCreator::Detail::kShapes), assigned_(graph) {
    given_.no_symbol_is_one = true;
    given_.grad_mode = c10::GradMode::is_enabled();
  }

  void specialize(Value& value, const c10::IValue& held, Origin origin) {
    if (held.isCustomClass()) {
      given_.values.emplace(&value, packed_weights(held.toObjectRef()));
    } else if (held.isObject() && value.type()->kind() == c10::TypeKind::ClassType) {
      for (const Use& use : value.uses()) {
        specialize_attribute(*use.user, held.toObjectRef());
      }
    } else if (held.isTensor() && value.type()->kind() == c10::TypeKind::TensorType) {
      if (auto facts = facts_of_plain(held.toTensor(), origin)) {
        value.set_facts(std::move(*facts));
      }
    } else if (AbstractValue known = abstract(held, origin); !known.is_unknown()) {
      given_.values.emplace(&value, std::move(known));
    }
  }

  InputAssumptions given() { return std::move(given_); }

 private:
  void specialize_attribute(const Node& user, const c10::ivalue::Object& object) {
    if (user.kind() != prim::GetAttr) {
      return;
    }
    const c10::IValue held = object.getAttr(user.attribute_as<std::string>(attr::kName));
    if (!assigned_.contains(user)) {
      specialize(*user.output(), held, Origin::kAttribute);
    } else if (held.isTensor() && user.output()->type()->kind() == c10::TypeKind::TensorType) {
      given_.initial_attribute_values.emplace(user.output(), abstract(held, Origin::kAttribute));
    }
  }

  // Numbers among the arguments may differ in the next call.
  AbstractValue abstract(const c10::IValue& held, Origin origin) {
    if (held.isTensor()) {
      auto facts = facts_of_plain(held.toTensor(), origin);
      return facts ? AbstractValue::tensor(std::move(*facts)) : AbstractValue();
    }
    // The keys of a dict are not part of a spec.
    if (held.isGenericDict() && origin == Origin::kAttribute && held.toGenericDict().size() <= spec_words::kMaxElements) {
      AbstractValues keys;
      AbstractValues values;
      for (const auto& entry : held.toGenericDict()) {
        keys.push_back(AbstractValue::constant(entry.key()));
        values.push_back(abstract(entry.value(), origin));
      }
      return AbstractValue::mapping(std::move(keys), std::move(values));
    }
    if (held.isTuple() || (held.isList() && held.toListRef().size() <= spec_words::kMaxElements)) {
      AbstractValues elements;
      for (const c10::IValue& element : held.isTuple() ? held.toTupleRef().elements().vec() : held.toListRef().vec()) {
        elements.push_back(abstract(element, origin));
      }
      return AbstractValue::sequence(std::move(elements));
    }
    return held.isNone() || origin == Origin::kAttribute ? AbstractValue::constant(held) : AbstractValue();
  }

  std::optional<TensorFacts> facts_of_plain(const at::Tensor& tensor, Origin origin) {
    if (!tensor.defined() || is_exotic(*tensor.unsafeGetTensorImpl())) {
      return std::nullopt;
    }
    TensorFacts facts = facts_of(tensor);
    facts.defined.reset();
    if (!exact_) {
      facts.strides.reset();
      for (Dim& size : *facts.sizes) {
        if (origin == Origin::kArgument && size.value() != 1) {
          given_.examples[++last_symbol_] = size.value();
          size = Dim::symbol(last_symbol_);
        }
      }
    }
    return facts;
  }

  const bool exact_;
  const AssignedAttributes assigned_;
  int64_t last_symbol_ = 0;
  InputAssumptions given_;
};

}  // namespace

InputAssumptions specialize_types(Graph& graph, std::span<const c10::IValue> arguments, ArgumentSpecCreator::Detail detail) {
  SCONCE_ASSERT(arguments.size() == graph.inputs().size());
  Specialization specialization(graph, detail);
  for (size_t i = 0; i < arguments.size(); ++i) {
    specialization.specialize(*graph.inputs()[i], arguments[i], Origin::kArgument);
  }
  return specialization.given();
}

}  // namespace sconce
