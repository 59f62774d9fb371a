#include "executor/joint/joint_recorder.h"

#include "analysis/effects.h"
#include "analysis/memory/memory_source.h"
#include "base/storage_of.h"
#include "executor/joint/double_backward.h"
#include "executor/joint/split_recording.h"
#include "trace/history.h"

#include <ATen/ops/ones_like.h>
#include <torch/csrc/autograd/autograd.h>
#include <torch/csrc/autograd/saved_variable.h>

#include <algorithm>
#include <string_view>
#include <utility>

namespace sconce {
namespace {

// Loops are unrolled in a recording. A longer one takes seconds and memory to compile.
constexpr size_t kMaxOperators = 100'000;

// Returns the gradients of the inputs, as backward of the results brings them.
std::vector<at::Tensor> gradients_of(const std::vector<at::Tensor>& results, const std::vector<at::Tensor>& inputs,
                                     const std::vector<at::Tensor>& incoming) {
  if (results.empty()) {
    return std::vector<at::Tensor>(inputs.size());
  }
  return torch::autograd::grad(results, inputs, incoming, /*retain_graph=*/true, /*create_graph=*/false,
                               /*allow_unused=*/true);
}

// Returns the leaves of the results' history besides the inputs.
std::vector<at::Tensor> other_leaves(const std::vector<at::Tensor>& results, const std::vector<at::Tensor>& inputs) {
  std::vector<at::Tensor> leaves = leaves_of(results);
  std::erase_if(leaves, [&](const at::Tensor& leaf) {
    return std::ranges::any_of(inputs, [&](const at::Tensor& input) { return input.is_same(leaf); });
  });
  return leaves;
}

std::string message_of(const std::exception& error) {
  const auto* of_torch = dynamic_cast<const c10::Error*>(&error);
  return of_torch != nullptr ? of_torch->what_without_backtrace() : error.what();
}

// Returns whether backward from the result raises because a backward before has freed what it reads.
bool has_freed_history(const at::Tensor& result, const std::vector<at::Tensor>& inputs) {
  try {
    gradients_of({result}, inputs, {at::ones_like(result)});
  } catch (const c10::Error& error) {
    return std::string_view(error.what_without_backtrace()) == torch::autograd::ERR_BACKWARD_TWICE;
  }
  return false;
}

// Notes which tensors forward writes, and whether it draws random numbers.
void note_effects(const Graph& forward, size_t symbols, JointPlans& plans) {
  for_each_node(forward.body(), [&](const Node* node) {
    plans.draws = plans.draws || effects_of(*node).random;
    for (size_t i = 0; i < node->inputs().size(); ++i) {
      if (node->schema() == nullptr || !may_write_operand(*node, i)) {
        continue;
      }
      if (const Value& written = base_of_memory(*node->input(i)); written.node() == forward.body().param_node()) {
        plans.written.push_back(written.offset() - symbols);
      }
    }
  });
  std::ranges::sort(plans.written);
  plans.written.erase(std::unique(plans.written.begin(), plans.written.end()), plans.written.end());
}

// Removes detaches from a graph that runs below autograd.
void remove_detaches(Graph& graph) {
  for_each_node(graph.body(), [](Node* node) {
    if (node->opcode() == Opcode::kDetach) {
      node->output()->replace_all_uses_with(node->input(0));
      node->erase();
    }
  });
}

// Returns why a later call cannot repeat what the recorded one writes; null if it can. `tensors`: of the call.
const char* why_not_repeated(const JointPlans& plans, std::span<const at::Tensor> tensors) {
  if (!plans.written.empty() && plans.written.front() < plans.arguments) {
    return "it writes an argument";
  }
  // Backward of backward runs forward again, on what was written as it was before.
  const auto is_written = [&](size_t tensor) {
    return std::ranges::any_of(plans.written,
                               [&](size_t written) { return storage_of(tensors[written]) == storage_of(tensors[tensor]); });
  };
  return std::ranges::any_of(plans.differentiable_tensors, is_written) ? "it writes a tensor that requires a gradient"
                                                                       : nullptr;
}

// Records the gradients of the tensors, and adds them to the tracer's graph.
void differentiate_results(Tracer& tracer, const std::vector<at::Tensor>& results, const std::vector<at::Tensor>& tensors,
                           JointPlans& plans) {
  std::vector<at::Tensor> differentiable;
  std::vector<at::Tensor> incoming;
  for (size_t i = 0; i < results.size(); ++i) {
    if (results[i].requires_grad()) {
      plans.differentiable_results.push_back(i);
      differentiable.push_back(results[i]);
      incoming.push_back(tracer.add_gradient(results[i]));
    }
  }
  std::vector<at::Tensor> inputs;
  std::vector<size_t> positions;
  for (size_t i = 0; i < tensors.size(); ++i) {
    const auto is_same = [&](const at::Tensor& other) { return other.is_same(tensors[i]); };
    if (tensors[i].requires_grad() && std::ranges::none_of(inputs, is_same)) {
      inputs.push_back(tensors[i]);
      positions.push_back(i);
    }
  }
  std::vector<at::Tensor> gradients;
  try {
    gradients = gradients_of(differentiable, inputs, incoming);
  } catch (const std::exception& error) {
    // The caller's backward raises this, too, if there is one.
    plans.why_no_backward = message_of(error);
    if (!std::ranges::all_of(differentiable, [&](const at::Tensor& result) { return has_freed_history(result, inputs); })) {
      tracer.refuse("backward raises: " + plans.why_no_backward);
    }
    plans.differentiable_tensors = positions;
    return;
  }
  // These gradients nobody has, but backward computes them and may raise, where autograd::grad does not.
  if (const std::vector<at::Tensor> others = other_leaves(differentiable, inputs); !others.empty()) {
    const RequiredGradients required(others);
    gradients_of(differentiable, others, incoming);
  }
  for (size_t i = 0; i < gradients.size(); ++i) {
    if (gradients[i].defined()) {
      plans.differentiable_tensors.push_back(positions[i]);
      tracer.add_output(gradients[i]);
    }
  }
}

}  // namespace

JointRecording record_gradients(Tracer& tracer, const std::vector<at::Tensor>& results,
                                const std::vector<at::Tensor>& tensors) {
  JointRecording recording{std::make_shared<JointPlans>(), tracer.graph().body().last()};
  if (tracer.graph().node_count() > kMaxOperators) {
    tracer.refuse("it runs more than " + std::to_string(kMaxOperators) + " operators");
    return recording;
  }
  tracer.detach_without_gradients(false);
  JointPlans& plans = *recording.plans;
  plans.results = results.size();
  for (const at::Tensor& result : results) {
    tracer.add_output(result);
  }
  const size_t reads = tracer.reads().size();
  for (const Tracer::Read& read : tracer.reads()) {
    tracer.graph().add_output(read.value);
    plans.reads.push_back(read.number);
  }
  const size_t captured = tracer.captured().size();
  differentiate_results(tracer, results, tensors, plans);
  if (tracer.reads().size() != reads) {
    tracer.refuse("backward reads a number from a tensor");
  }
  if (tracer.captured().size() != captured) {
    tracer.refuse("backward reads a tensor that forward did not");
  }
  return recording;
}

const char* compile_recording(JointRecording recording, std::unique_ptr<Graph> recorded, size_t symbols,
                              std::span<const at::Tensor> given, const SymbolicSizes* guards, const Options& options) {
  const std::shared_ptr<JointPlans> plans = std::move(recording.plans);
  RecordingParts parts =
      split_recording(*recorded, symbols, given.size(), plans->results + plans->reads.size(), recording.last_of_forward);
  plans->needs = std::move(parts.needs);
  plans->saved_tensors = std::move(parts.saved_inputs);
  plans->saved_results = std::move(parts.saved_outputs);
  plans->reaches = std::move(parts.reaches);
  plans->shares = std::move(parts.shares);
  if (!plans->why_no_backward.empty()) {
    plans->reaches.assign(plans->differentiable_results.size(),
                          std::vector<bool>(plans->differentiable_tensors.size(), true));
  }
  note_effects(*parts.forward, symbols, *plans);
  if (const char* reason = why_not_repeated(*plans, given)) {
    return reason;
  }
  plans->operators = std::make_unique<OperatorGraph>(parts.forward->clone(), plans->name);
  for (const Value* input : plans->operators->graph()->inputs().slice(symbols, given.size())) {
    plans->read.push_back(!input->uses().empty());
  }
  const auto is_kept_tensor = [](const Value* output) { return output->type()->kind() == c10::TypeKind::TensorType; };
  plans->frees_tensors =
      !plans->saved_tensors.empty() || !plans->saved_results.empty() ||
      std::ranges::any_of(parts.forward->outputs().slice(plans->results + plans->reads.size()), is_kept_tensor);
  const CapturedSizes sizes = guards != nullptr ? CapturedSizes::of(*guards) : CapturedSizes();
  remove_detaches(*parts.forward);
  remove_detaches(*parts.backward);
  plans->forward = TracedGraph::make(std::move(parts.forward), plans->name + " (recorded)", options, sizes);
  if (!plans->differentiable_results.empty() && plans->why_no_backward.empty()) {
    plans->backward = TracedGraph::make(std::move(parts.backward), plans->name + " (recorded backward)", options, sizes);
  }
  if (!plans->draws) {
    plans->double_backward = std::make_unique<DoubleBackward>(*plans, options);
  }
  return nullptr;
}

}  // namespace sconce
