#include "executor/recorded_calls/operator_graph.h"

#include "executor/compile.h"
#include "lower/lower.h"
#include "plan/run_plan.h"
#include "trace/trace_key.h"
#include "trace/tracer.h"

#include <c10/core/impl/LocalDispatchKeySet.h>

#include <vector>

namespace sconce {

void OperatorGraph::run(torch::jit::Stack& stack) const {
  const std::string failure = "sconce cannot differentiate " + name_ + " twice";
  const Tracer* tracer = TracingScope::current();
  const bool has_symbolic_sizes = tracer != nullptr && tracer->symbols() > 0;
  std::call_once(has_symbolic_sizes ? is_lowered_open_ : is_lowered_, [&] {
    std::unique_ptr<Plan>& plan = has_symbolic_sizes ? symbolic_plan_ : plan_;
    plan = (has_symbolic_sizes ? compile_symbolic(graph_, nullptr) : lower(graph_)).value_or_throw(failure);
    plan->set_name(name_);
  });
  const c10::impl::ExcludeDispatchKeyGuard no_autocast(c10::autocast_dispatch_keyset);  // the casts are recorded
  run_plan(has_symbolic_sizes ? *symbolic_plan_ : *plan_, stack, AutogradUse::kAll);
}

torch::jit::Stack symbols_of(const SizePattern& pattern, std::span<const at::Tensor> arguments) {
  std::vector<c10::SymInt> sizes;  // in the order of TraceKeyParts::sizes
  for (const at::Tensor& tensor : arguments) {
    if (tensor.layout() != c10::kStrided) {
      continue;
    }
    sizes.insert(sizes.end(), tensor.sym_sizes().begin(), tensor.sym_sizes().end());
    if (has_gaps(real_of(tensor))) {
      sizes.insert(sizes.end(), tensor.sym_strides().begin(), tensor.sym_strides().end());
    }
  }
  torch::jit::Stack symbols;
  for (const size_t index : pattern.sources()) {
    symbols.emplace_back(sizes[index]);
  }
  return symbols;
}

}  // namespace sconce
