#include "trace/call_arguments.h"

#include "trace/module_state.h"
#include "trace/sizes/symbolic_facts.h"
#include "trace/tracer.h"

#include <algorithm>
#include <optional>
#include <utility>

namespace sconce {

std::vector<at::Tensor> tensors_in(const std::vector<c10::IValue>& values) {
  std::vector<at::Tensor> tensors;
  for (const c10::IValue& value : values) {
    if (value.isTensor()) {
      if (value.toTensor().defined()) {
        tensors.push_back(value.toTensor());
      }
      continue;
    }
    with_each_tensor(value, [&](const at::Tensor& tensor) {
      tensors.push_back(tensor);
      return tensor;
    });
  }
  return tensors;
}

CallArguments::CallArguments(std::vector<c10::IValue> given)
    : values(std::move(given)), tensors(tensors_in(values)), key(trace_key_parts(tensors)) {}

ArgumentStructure::ArgumentStructure(const std::vector<c10::IValue>& values) {
  for (const c10::IValue& value : values) {
    values_.push_back(with_each_tensor(value, [](const at::Tensor&) { return at::Tensor(); }));
  }
}

bool ArgumentStructure::holds(const std::vector<c10::IValue>& values) const {
  return std::equal(values.begin(), values.end(), values_.begin(), values_.end(), have_equal_structure);
}

std::vector<c10::IValue> add_arguments(Tracer& tracer, const CallArguments& arguments, const SizePattern& pattern,
                                       const std::shared_ptr<SymbolicSizes>& sizes) {
  std::vector<std::optional<TensorFacts>> facts(arguments.tensors.size());
  if (sizes != nullptr) {
    facts = facts_by_pattern(arguments.tensors, pattern, 0, sizes->arithmetic());
  }
  size_t next = 0;
  std::vector<c10::IValue> traced;
  for (const c10::IValue& value : arguments.values) {
    traced.push_back(
        with_each_tensor(value, [&](const at::Tensor& tensor) { return tracer.add_leaf(tensor, facts[next++]); }));
  }
  return traced;
}

}  // namespace sconce
