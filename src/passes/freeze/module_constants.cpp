#include "passes/freeze/module_constants.h"

#include "analysis/memory/escapes.h"
#include "base/plain_keys.h"
#include "ir/constant_operands.h"
#include "ir/refusal.h"
#include "passes/freeze/module_code.h"
#include "passes/required/eliminate_dead_nodes.h"
#include "passes/simplify/simplify.h"

#include <ATen/core/Tensor.h>
#include <ATen/core/class_type.h>
#include <ATen/core/jit_type.h>
#include <ATen/ops/empty.h>
#include <c10/core/InferenceMode.h>

#include <set>
#include <unordered_map>

namespace sconce {
namespace {

// Returns whether the tensor is plain, so that a plan need not check it in each call (rule R10).
bool is_ordinary(const at::Tensor& tensor) {
  return tensor.defined() && tensor.layout() == c10::kStrided && are_plain(tensor.key_set(), tensor.device().type()) &&
         !tensor._fw_grad(0).defined() && !tensor.unsafeGetTensorImpl()->is_wrapped_number();
}

// Returns the type of a constant that replaces reads of the attribute.
c10::TypePtr narrowed_type(AttributeSlot slot) {
  const c10::TypePtr declared = slot.first->type()->getAttribute(slot.second);
  if (ModuleObjects::value_of(slot).isNone() && c10::NoneType::get()->isSubtypeOf(*declared)) {
    return c10::NoneType::get();
  }
  return declared->kind() == c10::TypeKind::OptionalType ? declared->expectRef<c10::OptionalType>().getElementType()
                                                         : declared;
}

void simplify_and_clean(Graph& graph) {
  simplify(graph);
  eliminate_dead_nodes(graph);
}

bool ends_the_method(const Node& node) { return node.kind() == prim::Return && node.owning_block()->owner() == nullptr; }

// The return node of a block has no text, so the node around the block is named.
Refusal refusal_at(const Node& node, const std::string& reason) {
  return ends_the_method(node) ? Refusal::because(reason)
                               : refusal_of(node.kind() == prim::Return ? *node.owning_block()->owner() : node, reason);
}

const Node* writer_of(const Value& value, const Graph& graph, const AliasSets& aliases) {
  const Node* writer = nullptr;
  for_each_node(graph.body(), [&](Node* node) {
    if (writer == nullptr && aliases.may_write(*node, value)) {
      writer = node;
    }
  });
  return writer;
}

class ConstantAttributes {
 public:
  ConstantAttributes(const c10::IValue& module, FunctionTable& functions) : objects_(module), functions_(functions) {}

  Expected<void> run(const std::vector<std::string>& preserved) {
    const auto training = objects_.find("training");
    if (training && value_of(*training).isBool() && value_of(*training).toBool()) {
      return Refusal::because("the module is in training mode, and what is frozen cannot be trained; call eval() first");
    }
    for (const std::string& name : preserved) {
      if (auto done = preserve(name); !done) {
        return done.refusal();
      }
    }
    auto code = ModuleCode::collect(objects_, functions_);
    if (!code) {
      return code.refusal();
    }
    fold_data(*code);
    for (const ModuleCode::Body& body : code->bodies()) {
      look_at_memory(body);
    }
    look_at_sharing();
    return {};
  }

  std::map<AttributeSlot, ModuleAttribute> attributes() {
    std::map<AttributeSlot, ModuleAttribute> attributes;
    for (const auto& [slot, name] : objects_.names()) {
      attributes.emplace(slot, attribute(slot));
      if (blocked_.count(slot) != 0) {
        objects_.may_be_replaced(slot);
      }
    }
    return attributes;
  }

  ModuleObjects take_objects() { return std::move(objects_); }

 private:
  static const c10::IValue& value_of(AttributeSlot slot) { return ModuleObjects::value_of(slot); }

  Expected<void> preserve(const std::string& name) {
    const auto slot = objects_.find(name);
    if (!slot && objects_.module()->type()->findMethod(name) != nullptr) {
      return {};
    }
    if (!slot) {
      return Refusal::because("there is no '" + name +
                              "' to preserve; name an attribute as in 'encoder.weight', a submodule or a method");
    }
    const auto preserve_slot = [&](AttributeSlot each) {
      preserved_.insert(each);
      objects_.may_be_replaced(each);
    };
    preserve_slot(*slot);
    if (value_of(*slot).isModule()) {
      ModuleObjects::for_each_slot_in(value_of(*slot).toObjectRef(), preserve_slot);
    }
    return {};
  }

  void block(AttributeSlot slot, const Refusal& refusal) { blocked_.try_emplace(slot, refusal); }

  // Returns the type of the constant that the attribute is, as far as is known; null if it is not a constant.
  c10::TypePtr candidate_type(AttributeSlot slot) const {
    c10::TypePtr type = narrowed_type(slot);
    const c10::IValue& value = value_of(slot);
    const bool fits = can_be_constant(type) && value.isNone() == (type->kind() == c10::TypeKind::NoneType) &&
                      (!value.isTensor() || is_ordinary(value.toTensor()));
    return fits && preserved_.count(slot) == 0 && blocked_.count(slot) == 0 ? type : nullptr;
  }

  // Calls `visit(node, slot, type)` for every read of an attribute that is a constant as far as is known.
  template <typename Visit>
  void for_each_read(const ModuleCode::Body& body, const Visit& visit) const {
    const ObjectMap known = objects_.objects_in(*body.graph, body.inputs);
    for_each_node(body.graph->body(), [&](Node* node) {
      const auto slot = node->kind() == prim::GetAttr ? attribute_slot(*node, known) : std::nullopt;
      if (const c10::TypePtr type = slot ? candidate_type(*slot) : nullptr) {
        visit(*node, *slot, type);
      }
    });
  }

  // Constants decide which branches remain, and so which nodes write. Iterates until no more constants are found.
  void fold_data(ModuleCode& code) {
    for (const ModuleCode::Body& body : code.bodies()) {
      simplify_and_clean(*body.graph);
    }
    for (bool changed = true; changed;) {
      blocked_.clear();
      for (const ModuleCode::Body& body : code.bodies()) {
        look_at_objects(body, code);
      }
      changed = false;
      for (const ModuleCode::Body& body : code.bodies()) {
        changed |= fold_data_in(body);
      }
    }
  }

  void look_at_objects(const ModuleCode::Body& body, const ModuleCode& code) {
    for (const auto& [value, object] : objects_.objects_in(*body.graph, body.inputs)) {
      for (const Use& use : value->uses()) {
        const Node& user = *use.user;
        if (user.kind() == prim::SetAttr && use.index == 0) {
          if (const auto slot = object->type()->findAttributeSlot(user.attribute_as<std::string>(attr::kName))) {
            block({object, *slot}, refusal_of(user, "a method assigns it"));
          }
        } else if (user.kind() != prim::GetAttr && user.kind() != prim::isinstance && !code.follows(user)) {
          const Refusal refusal = refusal_at(user, "the module that it belongs to goes where it cannot be followed");
          ModuleObjects::for_each_slot_in(*object, [&](AttributeSlot slot) { block(slot, refusal); });
        }
      }
    }
  }

  // Narrows the type of an optional that holds a tensor: writes into the tensor cannot make it None.
  bool fold_data_in(const ModuleCode::Body& body) const {
    bool changed = false;
    for_each_read(body, [&](Node& read, AttributeSlot slot, const c10::TypePtr& type) {
      if (!holds_memory(type)) {
        read.output()->replace_all_uses_with(body.graph->insert_constant(value_of(slot), &read, type));
        read.erase();
        changed = true;
      } else if (read.output()->type()->kind() == c10::TypeKind::OptionalType) {
        read.output()->set_type(type);
        changed = true;
      }
    });
    if (changed) {
      simplify_and_clean(*body.graph);
    }
    return changed;
  }

  // A new value, unrelated to any other, replaces all reads of an attribute. What the graph does with that value, it
  // does with the attribute.
  void look_at_memory(const ModuleCode::Body& body) {
    Graph& graph = *body.graph;
    std::map<AttributeSlot, Value*> stand_ins;
    for_each_read(body, [&](Node& read, AttributeSlot slot, const c10::TypePtr& type) {
      Value*& stand_in = stand_ins[slot];
      if (stand_in == nullptr) {
        stand_in = graph.create(prim::Uninitialized, {})->insert_before(graph.body().first())->output()->set_type(type);
      }
      read.output()->replace_all_uses_with(stand_in);
      read.erase();
    });
    const AliasSets aliases(graph);
    for (const auto& [slot, value] : stand_ins) {
      const Node* writer = aliases.may_be_written(*value) ? writer_of(*value, graph, aliases) : nullptr;
      const Node* leaving = escaping_use(*value);
      // Most values in the wildcard set belong to code outside. A write to one of them need not be a write to this
      // attribute.
      if (writer != nullptr && (leaving == nullptr || !aliases.is_wildcard(*value))) {
        block(slot, refusal_of(*writer, "a method may write it in place"));
      } else if (leaving != nullptr) {
        block(slot, refusal_at(*leaving, ends_the_method(*leaving)
                                             ? "a method returns it or a view of it, and the caller could write that"
                                             : "it goes where it cannot be followed"));
      }
    }
  }

  void look_at_sharing() {
    std::unordered_map<const void*, const std::string*> held;  // attributes that are not constants, by the memory they hold
    for (const auto& [slot, name] : objects_.names()) {
      if (!value_of(slot).isModule() && candidate_type(slot) == nullptr) {
        for (const void* memory : memory_of(value_of(slot))) {
          held.emplace(memory, &name);
        }
      }
    }
    for (const auto& [slot, name] : objects_.names()) {
      if (value_of(slot).isModule() || candidate_type(slot) == nullptr) {
        continue;
      }
      for (const void* memory : memory_of(value_of(slot))) {
        if (const auto other = held.find(memory); other != held.end()) {
          block(slot, Refusal::because("it shares memory with " + *other->second + ", which is no constant"));
        }
      }
    }
  }

  ModuleAttribute attribute(AttributeSlot slot) {
    const c10::IValue& value = value_of(slot);
    if (const auto blocked = blocked_.find(slot); blocked != blocked_.end()) {
      return {.constant = std::nullopt, .type = nullptr, .refusal = blocked->second};
    }
    if (value.isModule() || preserved_.count(slot) != 0) {
      return {};
    }
    c10::TypePtr type = candidate_type(slot);
    if (type == nullptr) {
      const std::string reason = value.isTensor()
                                     ? "it is no ordinary dense tensor"
                                     : "no constant can hold a value of type " + narrowed_type(slot)->repr_str();
      return {.constant = std::nullopt, .type = nullptr, .refusal = Refusal::because(reason)};
    }
    return {.constant = value.isTensor() ? c10::IValue(detached(value.toTensor())) : value,
            .type = std::move(type),
            .refusal = std::nullopt};
  }

  // Returns one detached tensor per tensor, so that two attributes that hold one tensor still do.
  at::Tensor detached(const at::Tensor& tensor) {
    const c10::InferenceMode normal(false);
    at::Tensor& made = detached_[tensor.unsafeGetTensorImpl()];
    if (!made.defined()) {
      // A view of an inference tensor is one, too, and would not be packed. Nothing writes a constant.
      const bool is_inference = tensor.is_inference() && !tensor.is_conj() && !tensor.is_neg();
      made = is_inference ? at::empty({0}, tensor.options()) : tensor.detach();
      if (is_inference) {
        made.set_(tensor.storage(), tensor.storage_offset(), tensor.sizes(), tensor.strides());
      }
    }
    return made;
  }

  ModuleObjects objects_;
  FunctionTable& functions_;
  std::set<AttributeSlot> preserved_;
  std::map<AttributeSlot, Refusal> blocked_;
  std::unordered_map<const c10::TensorImpl*, at::Tensor> detached_;
};

}  // namespace

Expected<ModuleConstants> ModuleConstants::find(const c10::IValue& module, const std::vector<std::string>& preserved,
                                                FunctionTable& functions) {
  ConstantAttributes analysis(module, functions);
  if (auto done = analysis.run(preserved); !done) {
    return done.refusal();
  }
  std::map<AttributeSlot, ModuleAttribute> attributes = analysis.attributes();
  return ModuleConstants(analysis.take_objects(), std::move(attributes), functions);
}

}  // namespace sconce
