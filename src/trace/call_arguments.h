// CallArguments: what a call that may be recorded is given.
#pragma once

#include "trace/sizes/size_pattern.h"
#include "trace/sizes/symbolic_sizes.h"
#include "trace/trace_key.h"

#include <ATen/core/ivalue.h>

#include <memory>
#include <vector>

namespace sconce {

class Tracer;

// Values, the tensors in them, and what a trace depends on in the state of the thread.
struct CallArguments {
  explicit CallArguments(std::vector<c10::IValue> given);

  std::vector<c10::IValue> values;
  std::vector<at::Tensor> tensors;  // in the values
  TraceKeyParts key;                // of the tensors
};

// Returns the tensors in the values, in their order.
std::vector<at::Tensor> tensors_in(const std::vector<c10::IValue>& values);

// The part of the arguments that all calls of a trace share, apart from the key of their tensors: containers, numbers and
// strings. Containers are copied: the caller may change its own.
class ArgumentStructure {
 public:
  explicit ArgumentStructure(const std::vector<c10::IValue>& values);
  bool holds(const std::vector<c10::IValue>& values) const;

 private:
  std::vector<c10::IValue> values_;  // with undefined tensors
};

// Adds the tensors of the arguments to the tracer, as leaves, and returns the values with the tensors that stand for them.
// `pattern`: of the sizes in the key. `sizes`: the tracer's; null if the pattern has no symbols.
std::vector<c10::IValue> add_arguments(Tracer& tracer, const CallArguments& arguments, const SizePattern& pattern,
                                       const std::shared_ptr<SymbolicSizes>& sizes);

}  // namespace sconce
