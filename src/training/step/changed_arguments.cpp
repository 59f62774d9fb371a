#include "training/step/changed_arguments.h"

#include "analysis/effects.h"
#include "analysis/memory/alias_sets.h"
#include "ir/memory_types.h"
#include "shapes/metadata_mutations.h"

#include <ATen/core/jit_type.h>

#include <algorithm>

namespace sconce {
namespace {

bool holds_lists_or_dicts(const Value& input) {
  return (memory_kinds_within(input.type()) & (kListMemory | kDictMemory)) != 0;
}

// Of containers in containers, analyses do not tell the memory of the inner ones from that of the tensors in them.
bool may_change_containers(const AliasSets& sets, const Value& input) {
  const c10::TypePtr& type = input.type();
  const bool is_flat = (memory_kinds_of(type) & ~(kListMemory | kDictMemory)) == 0 && !holds_containers(type);
  return holds_lists_or_dicts(input) && (is_flat ? sets.may_be_written(input) : sets.may_be_written_within(input));
}

}  // namespace

const char* why_arguments_may_change(const Graph& graph) {
  const auto inputs = graph.inputs().slice(1);  // after the module
  const auto any_input = [&](const auto& changes) { return std::any_of(inputs.begin(), inputs.end(), changes); };
  if (any_input([](const Value* input) { return holds_lists_or_dicts(*input); })) {
    const AliasSets sets(graph);
    if (any_input([&](const Value* input) { return may_change_containers(sets, *input); })) {
      return "the module may change a list or a dict among its arguments";
    }
  }
  if (may_change_sizes(graph)) {
    const MetadataMutations mutations(graph);
    if (any_input([&](const Value* input) { return mutations.contains(*input); })) {
      return "the module may change the sizes or strides of an argument in place";
    }
  }
  return nullptr;
}

}  // namespace sconce
