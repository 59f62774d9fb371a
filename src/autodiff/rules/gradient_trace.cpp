#include "autodiff/rules/gradient_trace.h"

#include "analysis/effects.h"
#include "base/assert.h"
#include "ir/schema_match.h"
#include "trace/tracer.h"

#include <ATen/core/grad_mode.h>
#include <ATen/core/jit_type.h>
#include <ATen/ops/ones_like.h>
#include <torch/csrc/autograd/autograd.h>
#include <torch/csrc/jit/runtime/operator.h>

#include <algorithm>
#include <string>
#include <utility>

namespace sconce {
namespace {

using Values = std::vector<Value*>;

// The graph that a tracer wrote, with the parts that its values play.
struct Recording {
  std::unique_ptr<Graph> graph;
  std::vector<size_t> argument_positions;  // by input: of tensors
  Values results;
  std::vector<size_t> gradient_inputs;  // by result: the input that is its incoming gradient
  std::vector<size_t> positions;        // by output
  std::vector<std::vector<int64_t>> result_sizes;
};

std::vector<c10::IValue> add_arguments(Tracer& tracer, const std::vector<c10::IValue>& arguments,
                                       const std::vector<bool>& required, Recording& recording) {
  std::vector<c10::IValue> traced = arguments;
  for (size_t i = 0; i < arguments.size(); ++i) {
    if (arguments[i].isTensor() && arguments[i].toTensor().defined()) {
      recording.argument_positions.push_back(i);
      traced[i] = tracer.add_saved(arguments[i].toTensor()).set_requires_grad(required[i]);
    }
  }
  return traced;
}

Expected<Recording> record(const Op& op, const std::vector<c10::IValue>& arguments, const std::vector<bool>& required,
                           bool create_graph) {
  Recording recording;
  const at::AutoGradMode grad_mode(true);
  Tracer tracer;
  const std::vector<c10::IValue> traced = add_arguments(tracer, arguments, required, recording);
  torch::jit::Stack results = traced;
  const TracingScope scope(tracer);
  op.registered->getOperation()(results);
  if (tracer.refusal()) {
    return *tracer.refusal();
  }
  if (!tracer.captured().empty()) {
    return Refusal::because("it computes with a tensor that it was not given");
  }
  std::vector<at::Tensor> outputs;
  std::vector<at::Tensor> incoming;
  for (const c10::IValue& result : results) {
    if (!result.isTensor() || !result.toTensor().defined()) {
      return Refusal::because("a result is no tensor");
    }
    const at::Tensor& tensor = result.toTensor();
    if (tensor.is_complex() || tensor.layout() != c10::kStrided) {
      return Refusal::because("a result is complex or sparse");
    }
    recording.results.push_back(tracer.value_of(tensor));
    recording.result_sizes.push_back(tensor.sizes().vec());
    recording.gradient_inputs.push_back(tracer.graph().inputs().size());
    const at::Tensor gradient = [&] {
      const PausedTracing paused;
      return at::ones_like(real_of(tensor), {}, at::MemoryFormat::Contiguous);
    }();
    const at::Tensor traced_gradient = tracer.add_saved(gradient);
    if (tensor.requires_grad()) {
      outputs.push_back(tensor);
      incoming.push_back(traced_gradient.set_requires_grad(create_graph));
    }
  }
  if (outputs.empty()) {
    return Refusal::because("its results require no gradient");
  }
  std::vector<at::Tensor> leaves;
  std::vector<size_t> positions;
  for (size_t i = 0; i < traced.size(); ++i) {
    if (traced[i].isTensor() && traced[i].toTensor().defined() && traced[i].toTensor().requires_grad()) {
      leaves.push_back(traced[i].toTensor());
      positions.push_back(i);
    }
  }
  const auto gradients =
      torch::autograd::grad(outputs, leaves, incoming, /*retain_graph=*/true, create_graph, /*allow_unused=*/true);
  for (size_t i = 0; i < gradients.size(); ++i) {
    if (gradients[i].defined()) {
      recording.positions.push_back(positions[i]);
      tracer.add_output(gradients[i]);
    }
  }
  if (tracer.refusal()) {
    return *tracer.refusal();
  }
  if (!tracer.captured().empty()) {
    return Refusal::because("its gradient is computed with a tensor that it was not given");
  }
  recording.graph = tracer.finish();
  return recording;
}

std::string numbered(const std::string& name, size_t index, size_t count) {
  return count == 1 ? name : name + std::to_string(index);
}

// Copies the recording to a graph with the inputs of OpGradient::backward.
std::unique_ptr<Graph> with_inputs_of_backward(const Op& op, const Recording& recording) {
  auto graph = std::make_unique<Graph>();
  for (const c10::Argument& argument : op.schema->arguments()) {
    graph->add_input(argument.name(), argument.type());
  }
  const auto arguments = graph->inputs().vec();
  for (const size_t position : recording.argument_positions) {
    arguments[position]->set_type(c10::TensorType::get());  // not an optional one
  }
  const size_t count = recording.results.size();
  Values results;
  Values gradients;
  for (size_t i = 0; i < count; ++i) {
    results.push_back(graph->add_input(numbered("result", i, count), c10::TensorType::get()));
  }
  for (size_t i = 0; i < count; ++i) {
    gradients.push_back(graph->add_input(numbered("grad", i, count), c10::TensorType::get()));
  }
  if (count > 1) {
    graph->add_input("defined", c10::ListType::ofBools());
  }
  graph->add_input("needs", c10::ListType::ofBools());
  graph->add_input("records", c10::BoolType::get());
  ValueMap values;
  for (size_t i = 0; i < recording.argument_positions.size(); ++i) {
    values[recording.graph->inputs()[i]] = arguments[recording.argument_positions[i]];
  }
  for (size_t i = 0; i < count; ++i) {
    values[recording.graph->inputs()[recording.gradient_inputs[i]]] = gradients[i];
  }
  for (Value* output : graph->copy_nodes(recording.graph->body(), graph->body().return_node(), values)) {
    graph->add_output(output);
  }
  for (size_t i = 0; i < count; ++i) {
    Value* computed = values[recording.results[i]];
    if (computed->node() != graph->body().param_node()) {
      computed->replace_all_uses_with(results[i]);
    }
  }
  return graph;
}

bool may_return_operand(const Node& node) {
  return node.schema() == nullptr || node.op().results_may_share_memory ||
         std::any_of(node.schema()->returns().begin(), node.schema()->returns().end(),
                     [](const c10::Argument& result) { return result.alias_info() != nullptr; });
}

// Returns whether the value is a tensor that its node made, and of which there is no view.
bool is_alone(const Value& value) {
  return !may_return_operand(*value.node()) && std::none_of(value.uses().begin(), value.uses().end(), [](const Use& use) {
    const bool is_write = use.user->schema() != nullptr && use.user->op().functional != nullptr && use.index == 0;
    return !is_write && may_return_operand(*use.user) && use.user->kind() != prim::Return;
  });
}

bool comes_before(const Node* node, const Node* other) {
  for (const Node* each = other->previous(); each != nullptr; each = each->previous()) {
    if (each == node) {
      return true;
    }
  }
  return false;
}

// Replaces writes of tensors that the graph made by operators that return new ones. Returns whether none is left.
bool remove_writes(Graph& graph) {
  for (Node* node : graph.body().nodes()) {
    if (node->schema() == nullptr || !effects_of(*node).writes) {
      continue;
    }
    const Op* functional = node->op().functional;
    if (functional == nullptr || !is_alone(*node->input(0))) {
      return false;
    }
    Node* replacement = graph.create(functional->kind, node->inputs());
    replacement->set_op(*functional);
    replacement->insert_before(node);
    const Value* written = node->input(0);
    node->output()->replace_all_uses_with(replacement->output());
    const std::vector<Use> uses(written->uses().begin(), written->uses().end());
    for (const Use& use : uses) {
      if (use.user != replacement && use.user != node && !comes_before(use.user, replacement)) {
        use.user->set_input(use.index, replacement->output());
      }
    }
    node->erase();
  }
  return true;
}

// Makes views of tensors whose strides another call may not have reshapes, which copy where there is no such view.
void relax_views(Graph& graph) {
  for (Node* node : graph.body().nodes()) {
    if (node->kind() != aten::view && node->kind() != aten::_unsafe_view) {
      continue;
    }
    Node* reshape = graph.create(aten::reshape, node->inputs(), 0);
    reshape->add_output(node->output()->type());
    reshape->insert_before(node);
    SCONCE_ASSERT(resolve(*reshape), "aten::reshape");
    node->output()->replace_all_uses_with(reshape->output());
    node->erase();
  }
}

void remove_unused(Graph& graph) {
  for (Node* node = graph.body().last(); node != nullptr;) {
    Node* previous = node->previous();
    if (std::none_of(node->outputs().begin(), node->outputs().end(), [](const Value* each) { return each->has_uses(); })) {
      node->erase();
    }
    node = previous;
  }
}

}  // namespace

Expected<GradientTrace> trace_gradient(const Op& op, const std::vector<c10::IValue>& arguments,
                                       const std::vector<bool>& required, bool create_graph) {
  Expected<Recording> recording = record(op, arguments, required, create_graph);
  if (!recording) {
    return recording.refusal();
  }
  GradientTrace trace;
  trace.graph = with_inputs_of_backward(op, *recording);
  for (const Node* node : trace.graph->body().nodes()) {
    if (node->schema() != nullptr && effects_of(*node).random) {
      return Refusal::because("it draws random numbers");
    }
  }
  if (!remove_writes(*trace.graph)) {
    return Refusal::because("its gradient writes memory that has another name");
  }
  relax_views(*trace.graph);
  remove_unused(*trace.graph);
  for (const Node* node : trace.graph->body().nodes()) {
    if (node->schema() != nullptr && has_effects(*node)) {
      return Refusal::because("its gradient has effects");
    }
  }
  trace.positions = std::move(recording->positions);
  trace.result_sizes = std::move(recording->result_sizes);
  return trace;
}

}  // namespace sconce
