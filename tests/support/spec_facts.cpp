#include "tests/support/spec_facts.h"

#include "executor/argument_spec/argument_spec.h"
#include "executor/argument_spec/facts_of_spec.h"

namespace sconce::testing {
namespace {

TensorFacts with_numbers(TensorFacts facts, const InputAssumptions& given) {
  for (Dim& size : *facts.sizes) {
    size = size.is_symbol() ? Dim::known(given.examples.at(size.value())) : size;
  }
  return facts;
}

AbstractValue with_numbers(const AbstractValue& value, const InputAssumptions& given) {
  if (const TensorFacts* facts = value.as_tensor()) {
    return AbstractValue::tensor(with_numbers(*facts, given));
  }
  if (const AbstractValues* elements = value.as_sequence()) {
    AbstractValues replaced;
    for (const AbstractValue& element : *elements) {
      replaced.push_back(with_numbers(element, given));
    }
    return AbstractValue::sequence(std::move(replaced));
  }
  return value;
}

void replace_symbols(Value& value, const InputAssumptions& given) {
  if (value.facts() != nullptr && value.facts()->sizes) {
    value.set_facts(with_numbers(*value.facts(), given));
  }
}

}  // namespace

InputAssumptions facts_of_call(Graph& graph, const std::vector<c10::IValue>& arguments, Sizes sizes) {
  const ArgumentSpecCreator creator(graph);
  ArgumentSpec spec;
  creator.create(arguments, spec);
  InputAssumptions given = facts_of_spec(graph, creator, spec.words(), creator.symbolic_sizes(arguments));
  if (sizes == Sizes::kNumbers) {
    for (Value* input : graph.inputs()) {
      replace_symbols(*input, given);
    }
    for_each_node(graph.body(), [&](Node* node) {
      if (node->kind() == prim::GetAttr) {
        replace_symbols(*node->output(), given);
      }
    });
    for (auto* values : {&given.values, &given.initial_attribute_values}) {
      for (auto& [value, known] : *values) {
        known = with_numbers(known, given);
      }
    }
  }
  return given;
}

std::vector<uint64_t> words_of_call(const Graph& graph, const std::vector<c10::IValue>& arguments) {
  ArgumentSpec spec;
  ArgumentSpecCreator(graph).create(arguments, spec);
  return {spec.words().begin(), spec.words().end()};
}

}  // namespace sconce::testing
