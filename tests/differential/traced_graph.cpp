#include "tests/differential/traced_graph.h"

#include "trace/module_state.h"

namespace sconce::testing {
namespace {

using Tensors = std::vector<at::Tensor>;

Tensors tensors_in(const std::vector<c10::IValue>& values) {
  Tensors tensors;
  for (const c10::IValue& value : values) {
    with_each_tensor(value, [&](const at::Tensor& tensor) {
      tensors.push_back(tensor);
      return tensor;
    });
  }
  return tensors;
}

std::vector<c10::IValue> with_tensors(const std::vector<c10::IValue>& values, const Tensors& tensors) {
  auto next = tensors.begin();
  std::vector<c10::IValue> filled;
  for (const c10::IValue& value : values) {
    filled.push_back(with_each_tensor(value, [&](const at::Tensor&) { return *next++; }));
  }
  return filled;
}

}  // namespace

TracedGraph::TracedGraph(RunGraph run, std::vector<c10::IValue> arguments)
    : run_(std::move(run)),
      arguments_(std::move(arguments)),
      traced_(trace(
          [this](Tensors in) {
            results_ = with_tensors(arguments_, in);
            run_(results_);
            return tensors_in(results_);
          },
          Options().compile(CompileMode::kBlocking))) {}

void TracedGraph::run(torch::jit::Stack& stack) const {
  const Tensors results = traced_(tensors_in(stack));
  stack = with_tensors(results_, results);
}

bool TracedGraph::is_replayed() const {
  const TraceExplanation explanation = traced_.explain();
  return !explanation.traces.empty() && explanation.traces.front().refusal.empty();
}

}  // namespace sconce::testing
