#include "executor/run_traced.h"

#include "load/export_graph.h"

#include <torch/csrc/jit/frontend/tracer.h>
#include <torch/csrc/jit/ir/ir.h>
#include <torch/csrc/jit/resource_guard.h>

#include <vector>

namespace sconce {
namespace {

namespace tracer = torch::jit::tracer;

// The tracer's knowledge about the arguments, so that the inserted graph is as specific as what the tracer records.
void specialize_inputs(torch::jit::Graph& graph, const std::vector<c10::IValue>& arguments) {
  for (size_t i = 0; i < arguments.size(); ++i) {
    if (arguments[i].isTensor() && graph.inputs()[i]->type()->kind() == c10::TypeKind::TensorType) {
      graph.inputs()[i]->setType(c10::TensorType::create(arguments[i].toTensor()));
    }
  }
}

}  // namespace

void run_traced(const Graph& graph, torch::jit::Stack& stack, const std::function<void(torch::jit::Stack&)>& run) {
  const std::shared_ptr<tracer::TracingState> state = tracer::getTracingState();
  const size_t first = stack.size() - graph.inputs().size();
  // Held until the end: the tracer identifies tensors by their addresses.
  const std::vector<c10::IValue> arguments(stack.begin() + static_cast<std::ptrdiff_t>(first), stack.end());
  std::vector<torch::jit::Value*> values;
  for (const c10::IValue& argument : arguments) {
    values.push_back(tracer::getValueTrace(argument));
  }
  {
    const torch::jit::ResourceGuard resume(tracer::pauseTracing());
    run(stack);
  }
  const auto exported = export_graph(graph);
  specialize_inputs(*exported, arguments);
  const std::vector<torch::jit::Value*> results = torch::jit::insertGraph(*state->graph, *exported, values);
  for (size_t i = 0; i < results.size(); ++i) {
    const c10::IValue& output = stack[first + i];
    if (output.isTensor() && results[i]->type()->kind() == c10::TypeKind::TensorType) {
      results[i]->setType(c10::TensorType::create(output.toTensor()));
    }
    tracer::setValueTrace(output, results[i]);
  }
}

}  // namespace sconce
