#include "training/step/changed_arguments.h"

#include "analysis/memory/alias_sets.h"
#include "shapes/metadata_mutations.h"

#include <ATen/core/jit_type.h>

#include <algorithm>

namespace sconce {
namespace {

bool is_container(const c10::TypePtr& type) {
  return type->kind() == c10::TypeKind::ListType || type->kind() == c10::TypeKind::DictType;
}

// Returns whether values of the type may have containers in them.
bool holds_containers(const c10::TypePtr& type) {
  const auto contained = type->containedTypes();
  return std::any_of(contained.begin(), contained.end(), [](const c10::TypePtr& inner) {
    return is_container(inner) || inner->kind() == c10::TypeKind::AnyType || holds_containers(inner);
  });
}

// Of containers in containers, analyses do not tell the memory of the inner ones from that of the tensors in them.
bool may_change_containers(const AliasSets& sets, const Value& input) {
  return holds_containers(input.type())        ? sets.may_be_written_within(input)
         : is_container(input.type())          ? sets.may_be_written(input)
         : input.type() == c10::AnyType::get() ? sets.may_be_written_within(input)
                                               : false;
}

}  // namespace

const char* why_arguments_may_change(const Graph& graph) {
  const auto inputs = graph.inputs().slice(1);  // after the module
  const AliasSets sets(graph);
  if (std::any_of(inputs.begin(), inputs.end(), [&](const Value* input) { return may_change_containers(sets, *input); })) {
    return "the module may change a list or a dict among its arguments";
  }
  const MetadataMutations mutations(graph);
  if (std::any_of(inputs.begin(), inputs.end(), [&](const Value* input) { return mutations.contains(*input); })) {
    return "the module may change the sizes or strides of an argument in place";
  }
  return nullptr;
}

}  // namespace sconce
