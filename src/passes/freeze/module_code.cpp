#include "passes/freeze/module_code.h"

#include "passes/required/inline_calls.h"

#include <ATen/core/class_type.h>
#include <ATen/core/function.h>
#include <ATen/core/jit_type.h>

#include <algorithm>
#include <string>

namespace sconce {

// Only the bodies show that an attribute is assigned another module. Calls of its methods are then unknown, and the
// bodies are collected again without them.
Expected<ModuleCode> ModuleCode::collect(ModuleObjects& objects, FunctionTable& functions) {
  while (true) {
    ModuleCode code;
    if (auto done = code.add_all(objects, functions); !done) {
      return done.refusal();
    }
    if (!code.mark_replaced(objects)) {
      return code;
    }
  }
}

Expected<void> ModuleCode::add_all(const ModuleObjects& objects, FunctionTable& functions) {
  const auto type = objects.module()->type();
  std::vector<torch::jit::Function*> called = type->methods();
  called.insert(called.end(), type->getForwardPreHooks().begin(), type->getForwardPreHooks().end());
  called.insert(called.end(), type->getForwardHooks().begin(), type->getForwardHooks().end());
  for (torch::jit::Function* function : called) {
    if (auto done = add(*function, {objects.module()}, objects, functions); !done) {
      return done.refusal();
    }
  }
  return {};
}

// Looks at names of attributes only, whatever the object is.
bool ModuleCode::mark_replaced(ModuleObjects& objects) const {
  std::set<std::string> assigned;
  for (const Body& body : bodies_) {
    for_each_node(body.graph->body(), [&](Node* node) {
      if (node->kind() == prim::SetAttr && (node->input(1)->type()->kind() == c10::TypeKind::ClassType ||
                                            node->input(1)->type()->kind() == c10::TypeKind::InterfaceType)) {
        assigned.insert(node->attribute_as<std::string>(attr::kName));
      }
    });
  }
  bool marked = false;
  for (const auto& [slot, name] : objects.names()) {
    if (objects.submodule(slot) != nullptr && assigned.count(slot.first->type()->getAttributeName(slot.second)) != 0) {
      objects.may_be_replaced(slot);
      marked = true;
    }
  }
  return marked;
}

Expected<void> ModuleCode::add(torch::jit::Function& function, std::vector<const ModuleObject*> inputs,
                               const ModuleObjects& objects, FunctionTable& functions) {
  if (!functions_.insert({&function, inputs}).second) {
    return {};
  }
  const auto source = functions.graph_of(function);
  return source ? add(**source, std::move(inputs), objects, functions) : source.refusal();
}

Expected<void> ModuleCode::add(const Graph& source, std::vector<const ModuleObject*> inputs, const ModuleObjects& objects,
                               FunctionTable& functions) {
  Body& body = bodies_.emplace_back(source.clone(), std::move(inputs));
  if (const auto inlined = inline_calls(*body.graph, functions); !inlined) {
    return inlined.refusal();
  }
  if (const auto inlined = objects.inline_interface_calls(*body.graph, body.inputs, functions); !inlined) {
    return inlined.refusal();
  }
  const ObjectMap known = objects.objects_in(*body.graph, body.inputs);
  Expected<void> done;
  for_each_node(body.graph->body(), [&](Node* node) {
    if (done) {
      done = follow(*node, known, objects, functions);
    }
  });
  return done;
}

Expected<void> ModuleCode::follow(const Node& node, const ObjectMap& known, const ModuleObjects& objects,
                                  FunctionTable& functions) {
  const AttributeValue* subgraph = node.attribute(attr::kSubgraph);
  const bool calls = node.kind() == prim::CallFunction || node.kind() == prim::CallMethod;
  if (!calls && subgraph == nullptr) {
    return {};
  }
  // A function is the operand before its arguments.
  std::vector<const ModuleObject*> inputs;
  for (const Value* input : node.inputs().slice(node.kind() == prim::CallFunction ? 1 : 0)) {
    const auto object = known.find(input);
    inputs.push_back(object == known.end() ? nullptr : object->second);
  }
  if (std::all_of(inputs.begin(), inputs.end(), [](const ModuleObject* object) { return object == nullptr; })) {
    return {};
  }
  if (subgraph != nullptr) {
    constexpr int kDeepest = 16;
    if (depth_ == kDeepest) {
      return {};  // a task that forks itself
    }
    followed_.insert(&node);
    ++depth_;
    auto done = add(*std::get<std::shared_ptr<Graph>>(*subgraph), std::move(inputs), objects, functions);
    --depth_;
    return done;
  }
  torch::jit::Function* callee = nullptr;
  if (node.kind() == prim::CallMethod && inputs.front() != nullptr) {
    callee = inputs.front()->type()->findMethod(node.attribute_as<std::string>(attr::kName));
  } else if (const auto found = FunctionTable::callee_of(node); found) {
    callee = *found;
  }
  if (callee == nullptr || !callee->isGraphFunction()) {
    return {};  // a method of an unknown object, or a built-in function
  }
  followed_.insert(&node);
  return add(*callee, std::move(inputs), objects, functions);
}

}  // namespace sconce
