#include "executor/recorded_calls/record_part.h"

#include "analysis/effects.h"
#include "analysis/gradient_paths.h"
#include "analysis/memory/memory_source.h"
#include "autodiff/split/split_joint_graph.h"
#include "base/exception_message.h"
#include "base/storage_of.h"
#include "executor/recorded_calls/recorded_forms.h"
#include "executor/recorded_calls/rerun_backward.h"
#include "passes/matmul/decompose_recorded_lstm.h"
#include "pipeline/pass_runner.h"
#include "trace/history.h"

#include <ATen/ops/ones_like.h>
#include <c10/core/impl/LocalDispatchKeySet.h>
#include <torch/csrc/autograd/autograd.h>
#include <torch/csrc/autograd/saved_variable.h>

#include <algorithm>
#include <iterator>
#include <mutex>
#include <optional>
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

// Returns whether backward from the result raises because a backward before has freed what it reads.
bool has_freed_history(const at::Tensor& result, const std::vector<at::Tensor>& inputs) {
  try {
    gradients_of({result}, inputs, {at::ones_like(result)});
  } catch (const c10::Error& error) {
    return std::string_view(error.what_without_backtrace()) == torch::autograd::ERR_BACKWARD_TWICE;
  }
  return false;
}

bool draws_numbers(const Graph& graph) {
  bool draws = false;
  for_each_node(graph.body(), [&draws](const Node* node) { draws = draws || effects_of(*node).random; });
  return draws;
}

// Returns a copy of a graph that runs below autograd.
std::unique_ptr<Graph> without_detaches(const Graph& graph) {
  std::unique_ptr<Graph> copy = graph.clone();
  for_each_node(copy->body(), [](Node* node) {
    if (node->opcode() == Opcode::kDetach) {
      node->output()->replace_all_uses_with(node->input(0));
      node->erase();
    }
  });
  return copy;
}

// Returns why a later call cannot repeat what the recorded one writes; null if it can. `given`: the call's tensors.
const char* why_not_repeated(const RecordedPart& part, const std::vector<size_t>& differentiable,
                             std::span<const at::Tensor> given, size_t arguments) {
  if (!part.written.empty() && part.written.front() < arguments) {
    return "it writes an argument";
  }
  // Backward of backward runs forward again, on what was written as it was before.
  const auto is_written = [&](size_t tensor) {
    return std::ranges::any_of(part.written,
                               [&](size_t written) { return storage_of(given[written]) == storage_of(given[tensor]); });
  };
  return std::ranges::any_of(differentiable, is_written) ? "it writes a tensor that requires a gradient" : nullptr;
}

// Records the gradients of the tensors, and adds them to the tracer's graph.
void differentiate_results(Tracer& tracer, const std::vector<at::Tensor>& results, const std::vector<at::Tensor>& tensors,
                           PartRecording& recording) {
  std::vector<at::Tensor> differentiable;
  std::vector<at::Tensor> incoming;
  for (size_t i = 0; i < results.size(); ++i) {
    if (results[i].requires_grad()) {
      recording.differentiable_results.push_back(i);
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
    recording.why_no_backward = message_of(error);
    if (!std::ranges::all_of(differentiable, [&](const at::Tensor& result) { return has_freed_history(result, inputs); })) {
      tracer.refuse("backward raises: " + recording.why_no_backward);
    }
    recording.differentiable_tensors = positions;
    return;
  }
  // A caller's backward also computes gradients of these leaves, and may raise.
  if (const std::vector<at::Tensor> others = other_leaves(differentiable, inputs); !others.empty()) {
    const RequiredGradients required(others);
    gradients_of(differentiable, others, incoming);
  }
  for (size_t i = 0; i < gradients.size(); ++i) {
    if (gradients[i].defined()) {
      recording.differentiable_tensors.push_back(positions[i]);
      tracer.add_output(gradients[i]);
    }
  }
}

// Returns what makes the plans of backward where some results have no gradient.
BackwardPlans::Make make_forms(std::shared_ptr<const Graph> backward, std::vector<std::vector<bool>> paths,
                               const std::string& name, const Options& options, TraceSizes sizes) {
  return [=](const BackwardForm& form) -> BackwardPlan {
    std::unique_ptr<Graph> graph = form.records ? nullptr : backward_of_form(*backward, form.gradients);
    if (graph == nullptr) {
      return {};
    }
    const std::shared_ptr<CompiledTrace> traced = CompiledTrace::make(std::move(graph), name, options, {.sizes = sizes});
    return {[traced](torch::jit::Stack& stack) { traced->run(stack); }, paths, [traced] { return traced->is_ready(); }};
  };
}

// Returns the joint graph of a recording, whose operands are the symbols, then the tensors. If backward raises, it has no
// gradients.
JointGraph joint_graph_of(const PartRecording& recording, std::shared_ptr<Graph> graph, size_t symbols, size_t tensors) {
  JointGraph joint{.graph = std::move(graph),
                   .forward_inputs = symbols + tensors,
                   .forward_outputs = recording.results + recording.reads.size()};
  joint.recording = {recording.last_of_forward, symbols, recording.backward_reads.size()};
  for (const size_t result : recording.differentiable_results) {
    joint.signature.outputs.push_back({result, {}, std::nullopt});
  }
  for (const size_t number : recording.differentiable_tensors) {
    if (recording.why_no_backward.empty()) {
      joint.signature.inputs.push_back(symbols + number);
    }
  }
  return joint;
}

// Completes the signature: which gradients of results reach which tensors. `sources`: gradients_of_outputs of backward.
void note_reached_tensors(const PartRecording& recording, size_t symbols, const std::vector<Dependence>& sources,
                          GradientSignature& signature) {
  signature.inputs.clear();
  for (const size_t number : recording.differentiable_tensors) {
    signature.inputs.push_back(symbols + number);
  }
  for (size_t i = 0; i < signature.outputs.size(); ++i) {
    std::vector<bool>& reaches = signature.outputs[i].reaches;
    reaches.assign(signature.inputs.size(), true);  // if backward raises
    for (size_t input = 0; input < reaches.size() && recording.why_no_backward.empty(); ++input) {
      reaches[input] = sources[input][i] || !any(sources[input]);  // zeros of known sizes read no gradient
    }
  }
  for (auto* saved : {&signature.saved_inputs, &signature.saved_outputs}) {
    for (GradientSignature::Saved& each : *saved) {
      each.paths.resize(signature.outputs.size() * signature.inputs.size());
    }
  }
}

// Runs the passes that replace operators whose results backward reads: forward and backward are still one graph.
void replace_with_backward(Graph& graph, PartRecording& recording, const Options& options) {
  if (!options.optimize() || options.exact() || recording.last_of_forward == nullptr ||
      recording.last_of_forward->next() == nullptr) {
    return;
  }
  const PausedTracing paused;
  // The pass may replace the last operator of forward, and the first one of backward.
  Node* const border = graph.insert_constant(false, recording.last_of_forward->next())->node();
  PassRunner(options.passes()).run("decompose_recorded_lstm", decompose_recorded_lstm, graph);
  recording.last_of_forward = border->previous();
  border->erase();
}

// Makes the function that autograd differentiates the part by.
void add_backward(PartRecording recording, DifferentiableGraphs graphs, const TraceSizes& sizes, const PartSettings& call,
                  RecordedPart& part) {
  auto function = std::make_shared<DifferentiableFunction>();
  function->name = call.name;
  function->outputs = recording.results;
  function->signature = std::move(graphs.signature);
  const size_t gradients = recording.differentiable_results.size();
  function->shares = gradients_that_share(*graphs.backward, gradients);
  function->is_list.resize(gradients);
  function->is_recorded = true;
  function->backward_reads = std::move(recording.backward_reads);
  auto rerun = std::make_unique<RerunBackward>(std::move(graphs.forward),
                                               RerunBackward::Form{.name = call.name,
                                                                   .symbols = call.symbols,
                                                                   .pattern = call.pattern,
                                                                   .arguments = call.arguments,
                                                                   .inputs = std::move(recording.differentiable_tensors),
                                                                   .outputs = std::move(recording.differentiable_results),
                                                                   .written = part.written,
                                                                   .draws = part.draws},
                                               call.options);
  part.rerun = rerun.get();
  function->operators = std::move(rerun);
  std::vector<std::vector<bool>> paths;
  for (const auto* saved : {&function->signature.saved_inputs, &function->signature.saved_outputs}) {
    std::ranges::transform(*saved, std::back_inserter(paths), &GradientSignature::Saved::paths);
  }
  const std::string name = call.name + " (recorded backward)";
  TraceSizes after_gradients = sizes;
  after_gradients.first = gradients;
  std::unique_ptr<Graph> backward = without_detaches(*graphs.backward);
  BackwardPlan all_defined{{}, paths};
  BackwardPlans::Make forms = make_forms(backward->clone(), std::move(paths), name, call.options, after_gradients);
  if (recording.why_no_backward.empty()) {
    part.backward = CompiledTrace::make(std::move(backward), name, call.options, {.sizes = std::move(after_gradients)});
    all_defined.run = [graph = part.backward](torch::jit::Stack& stack) { graph->run(stack); };
  }
  function->why_no_backward = std::move(recording.why_no_backward);
  function->backward = std::make_unique<BackwardPlans>(std::move(all_defined), std::move(forms));
  part.function = std::move(function);
}

}  // namespace

PartRecording record_gradients(Tracer& tracer, const std::vector<at::Tensor>& results,
                               const std::vector<at::Tensor>& tensors) {
  PartRecording recording{.results = results.size()};
  if (tracer.graph().node_count() > kMaxOperators) {
    tracer.refuse("it runs more than " + std::to_string(kMaxOperators) + " operators");
    return recording;
  }
  const c10::impl::ExcludeDispatchKeyGuard no_autocast(c10::autocast_dispatch_keyset);  // as in backwards of programs
  tracer.detach_without_gradients(false);
  for (const at::Tensor& result : results) {
    tracer.add_output(result);
  }
  for (const Tracer::Read& read : tracer.reads()) {
    tracer.graph().add_output(read.value);
    recording.reads.push_back(read.number);
  }
  recording.last_of_forward = tracer.graph().body().last();
  const size_t captured = tracer.captured().size();
  differentiate_results(tracer, results, tensors, recording);
  for (size_t i = recording.reads.size(); i < tracer.reads().size(); ++i) {
    tracer.graph().add_output(tracer.reads()[i].value);
    recording.backward_reads.push_back(tracer.reads()[i].number);
  }
  if (tracer.captured().size() != captured) {
    tracer.refuse("backward reads a tensor that forward did not");
  }
  return recording;
}

Expected<std::shared_ptr<RecordedPart>> compile_recording(PartRecording recording, std::unique_ptr<Graph> recorded,
                                                          std::span<const at::Tensor> given, const PartSettings& call) {
  auto part = std::make_shared<RecordedPart>();
  part->results = recording.results;
  replace_with_backward(*recorded, recording, call.options);
  DifferentiableGraphs graphs =
      split_joint_graph(joint_graph_of(recording, std::move(recorded), call.symbols, given.size()));
  part->draws = draws_numbers(*graphs.forward);
  for (const size_t input : written_inputs(*graphs.forward)) {
    part->written.push_back(input - call.symbols);
  }
  if (const char* reason = why_not_repeated(*part, recording.differentiable_tensors, given, call.arguments)) {
    return Refusal::because(reason);
  }
  const std::vector<Dependence> sources = gradients_of_outputs(*graphs.backward, recording.differentiable_results.size());
  if (std::any_of(sources.end() - static_cast<std::ptrdiff_t>(recording.backward_reads.size()), sources.end(), any)) {
    return Refusal::because("backward reads a number that depends on a gradient");
  }
  note_reached_tensors(recording, call.symbols, sources, graphs.signature);
  const TraceSizes sizes = call.sizes != nullptr ? TraceSizes::of(*call.sizes) : TraceSizes();
  part->forward = CompiledTrace::make(without_detaches(*graphs.forward), call.name + " (recorded)", call.options,
                                      {.sizes = sizes, .fresh_outputs = recording.results + recording.reads.size()});
  part->reads = std::move(recording.reads);
  if (!recording.differentiable_results.empty()) {
    add_backward(std::move(recording), std::move(graphs), sizes, call, *part);
  }
  return part;
}

}  // namespace sconce
