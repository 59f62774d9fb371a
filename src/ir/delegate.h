// A subgraph that somebody else computes: sconce::delegate, made by pipeline/partition_for_backend.h.
//
//   %r : Tensor = sconce::delegate_0[backend="my_backend"](%a, %b)
//   with sconce::delegate_0 = graph(%a : Tensor, %b : Tensor): …
//
// The node has no effect, and its results are new objects over new memory. The text is without the kernel: in a graph that
// is read from it the subgraph's operators run.
#pragma once

#include <ATen/core/ivalue.h>
#include <ATen/core/symbol.h>
#include <c10/util/ArrayRef.h>

#include <functional>
#include <utility>
#include <vector>

namespace sconce {

// The results of a subgraph from its operands, both in the subgraph's order; none at all when these operands (their dtype,
// their device, …) are not for it. Called by many threads at once, when no gradient is wanted, in either mode. It writes no
// operand and holds none after the call; its tensors share memory neither with one another nor with anything else. What it
// throws is its own failure, not the model's: see partition_for_backend.
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
