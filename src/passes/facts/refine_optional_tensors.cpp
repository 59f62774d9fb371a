#include "passes/facts/refine_optional_tensors.h"

#include <ATen/core/jit_type.h>

namespace sconce {
namespace {

bool is_optional_tensor(const Value& value) {
  const auto optional = value.type()->cast<c10::OptionalType>();
  return optional != nullptr && optional->getElementType()->kind() == c10::TypeKind::TensorType;
}

void refine(Value& value, const TensorFacts& facts, Node* position) {
  Node* cast = value.graph().create(prim::unchecked_cast, {&value}, 0);
  Value* tensor = cast->add_output(c10::TensorType::get());
  tensor->set_facts(facts);
  value.replace_all_uses_with(tensor);
  cast->set_input(0, &value);
  cast->insert_before(position);
}

}  // namespace

bool refine_optional_tensors(Graph& graph, const InputAssumptions& given) {
  bool changed = false;
  const auto consider = [&](Value& value, Node* position) {
    const auto known = given.values.find(&value);
    const TensorFacts* facts = known == given.values.end() ? nullptr : known->second.as_tensor();
    if (facts != nullptr && is_optional_tensor(value) && value.has_uses()) {
      refine(value, *facts, position);
      changed = true;
    }
  };
  Block& body = graph.body();
  Node* const first = body.first() != nullptr ? body.first() : body.return_node();
  for (Value* input : graph.inputs()) {
    consider(*input, first);
  }
  for_each_node(body, [&](Node* node) {
    if (node->kind() == prim::GetAttr) {
      consider(*node->output(), node->next() != nullptr ? node->next() : node->owning_block()->return_node());
    }
  });
  return changed;
}

}  // namespace sconce
