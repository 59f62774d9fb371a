// sconce::delegate: a subgraph that a backend's kernel computes. pipeline/partition_for_backend.h makes delegates.
//
//   %r : Tensor = sconce::delegate_0[backend="my_backend"](%a, %b)
//   with sconce::delegate_0 = graph(%a : Tensor, %b : Tensor): …
//
// The node has no effects, and its results are new objects over new memory. The text form leaves out the kernel, so a parsed
// delegate runs the operators of its subgraph.
#pragma once

#include <ATen/core/ivalue.h>
#include <ATen/core/symbol.h>
#include <c10/util/ArrayRef.h>

#include <functional>
#include <utility>
#include <vector>

namespace sconce {

// A kernel: computes the results of a subgraph from its operands, both in the subgraph's order. Returns an empty list to
// decline a call, for example because of an operand's dtype or device.
//
// It is called by many threads at once, and only when no gradient is required. It must not write an operand or keep one
// after the call. Its results must share memory neither with each other nor with anything else. An exception means that the
// kernel failed, not the model: see partition_for_backend.
using SubgraphKernel = std::function<std::vector<c10::IValue>(c10::ArrayRef<c10::IValue> operands)>;

inline const c10::Symbol kDelegateKind = c10::Symbol::fromQualString("sconce::delegate");

namespace attr {
inline const c10::Symbol kBackend = c10::Symbol::attr("backend");  // the name of the backend
inline const c10::Symbol kKernel = c10::Symbol::attr("kernel");    // an IValue that holds a KernelHolder
}  // namespace attr

struct KernelHolder final : torch::CustomClassHolder {
  explicit KernelHolder(SubgraphKernel function) : kernel(std::move(function)) {}
  const SubgraphKernel kernel;
};

}  // namespace sconce
