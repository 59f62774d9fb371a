#include "executor/joint/joint_trace.h"

#include "analysis/effects.h"
#include "analysis/memory/memory_source.h"
#include "base/storage_of.h"
#include "base/tensors_in.h"
#include "executor/joint/double_backward.h"
#include "executor/joint/joint_node.h"
#include "executor/joint/result_checks.h"
#include "executor/joint/split_recording.h"
#include "ir/graph.h"
#include "trace/backward_on_this_thread.h"
#include "trace/history.h"
#include "trace/tensor_state.h"
#include "trace/tracer.h"
#include "trace/tracing_conditions.h"
#include "trace/undone_writes.h"

#include <ATen/ops/empty.h>
#include <ATen/ops/ones_like.h>
#include <c10/core/GradMode.h>
#include <torch/csrc/autograd/autograd.h>
#include <torch/csrc/autograd/saved_variable.h>

#include <algorithm>
#include <map>
#include <numeric>
#include <set>
#include <unordered_set>
#include <utility>

namespace sconce {
namespace {

bool writes(const Node& node, const Value& base) {
  for (size_t i = 0; node.schema() != nullptr && i < node.inputs().size(); ++i) {
    if (may_write_operand(node, i) && &base_of_memory(*node.input(i)) == &base) {
      return true;
    }
  }
  return false;
}

// Lets the nodes that run after the last write of the result read the input. Returns false if one of them reads the memory
// through another value that was made before.
bool redirect_readers(Graph& graph, Value& result, Value* input) {
  const Value& base = base_of_memory(result);
  const Node* last_write = nullptr;
  for (const Node* node : graph.body().nodes()) {
    last_write = writes(*node, base) ? node : last_write;
  }
  std::unordered_set<const Value*> made_before;
  bool is_after = last_write == nullptr;
  for (Node* node : graph.body().nodes()) {
    for (size_t i = 0; is_after && i < node->inputs().size(); ++i) {
      if (node->input(i) == &result) {
        node->set_input(i, input);
      } else if (made_before.contains(node->input(i))) {
        return false;
      }
    }
    if (!is_after) {
      for (const Value* output : node->outputs()) {
        if (output != &result && &base_of_memory(*output) == &base) {
          made_before.insert(output);
        }
      }
    }
    is_after = is_after || node == last_write;
  }
  return true;
}

// Returns a copy of the graph with an input more per result of `cut`, by its position among the outputs: what is computed
// from the result reads the input. Returns null where that is not known: a node may write the result, and others may read it
// through a view that was made before.
std::unique_ptr<Graph> cut_at_results(const Graph& forward, const std::vector<size_t>& cut) {
  std::unique_ptr<Graph> graph = forward.clone();
  for (const size_t position : cut) {
    Value& result = *graph->outputs()[position];
    Value* input = graph->add_input(result.name(), result.type());
    if (!redirect_readers(*graph, result, input)) {
      return nullptr;
    }
  }
  return graph;
}

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

std::vector<JointPlans::Group> groups_of(const JointPlans& plans) {
  std::map<std::vector<size_t>, std::vector<size_t>> tensors_of;  // by results
  for (size_t tensor = 0; tensor < plans.differentiable_tensors.size(); ++tensor) {
    std::vector<size_t> results;
    for (size_t i = 0; i < plans.reaches.size(); ++i) {
      if (plans.reaches[i][tensor]) {
        results.push_back(i);
      }
    }
    tensors_of[results].push_back(tensor);
  }
  std::vector<JointPlans::Group> groups;
  for (auto& [results, tensors] : tensors_of) {
    groups.push_back({results, std::move(tensors)});
  }
  return groups;
}

// Sets how the results depend on each other.
void note_order(std::vector<std::vector<size_t>> below, JointPlans& plans) {
  std::set<size_t> cut;
  for (const std::vector<size_t>& results : below) {
    cut.insert(results.begin(), results.end());
  }
  plans.cut.assign(cut.begin(), cut.end());
  // A result is computed from more results than those below it are.
  plans.from_lowest.resize(below.size());
  std::iota(plans.from_lowest.begin(), plans.from_lowest.end(), size_t{0});
  std::ranges::sort(plans.from_lowest, [&below](size_t a, size_t b) { return below[a].size() < below[b].size(); });
  plans.below = std::move(below);
}

// Returns why a later call cannot repeat what the recorded one writes; null if it can. `tensors`: of the call.
const char* why_not_repeated(const JointPlans& plans, const std::vector<at::Tensor>& tensors, size_t arguments) {
  if (!plans.written.empty() && plans.written.front() < arguments) {
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

// A parameter has another gradient in a later call.
void refuse_gradients_of_others(const std::vector<at::Tensor>& leaves, Tracer& tracer) {
  for (const at::Tensor& leaf : leaves) {
    const auto is_gradient = [&](const at::Tensor& captured) { return leaf.grad().is_same(captured); };
    if (leaf.is_leaf() && leaf.grad().defined() && std::ranges::any_of(tracer.captured(), is_gradient)) {
      tracer.refuse("it reads the gradient of a parameter");
    }
  }
}

}  // namespace

bool sees_gradients(const at::Tensor& tensor) {
  if (!tensor.defined() || !tensor.requires_grad()) {
    return false;
  }
  const auto node = tensor.grad_fn();
  return has_hooks(tensor) ||
         (node != nullptr && (!node->tensor_pre_hooks().empty() || !node->retains_grad_hooks().empty()));
}

bool JointTrace::holds(const CallArguments& arguments) const {
  return state_.holds() && structure_.holds(arguments.values) && captured_.hold() &&
         !captured_.share_memory_with(arguments.tensors);
}

bool JointTrace::has_hooks_within(const CallArguments& arguments) const {
  const auto is_hooked = [](const at::Tensor& tensor) { return sees_gradients(tensor); };
  return plans_ != nullptr && plans_->runs_backward &&
         (std::ranges::any_of(captured_.tensors(), is_hooked) || std::ranges::any_of(arguments.tensors, is_hooked));
}

void JointTrace::wait_for_compile() const {
  if (plans_ != nullptr) {
    plans_->forward->wait_for_compile();
    if (plans_->backward != nullptr) {
      plans_->backward->wait_for_compile();
    }
    if (plans_->double_backward != nullptr) {
      plans_->double_backward->wait_for_compiles();
    }
  }
}

void JointTrace::explain(std::vector<Explanation>& plans) const {
  if (plans_ != nullptr) {
    plans.push_back(plans_->forward->explain());
    if (plans_->backward != nullptr) {
      plans.push_back(plans_->backward->explain());
    }
    if (plans_->double_backward != nullptr) {
      plans_->double_backward->explain(plans);
    }
  }
}

std::shared_ptr<JointPlans> JointTrace::record_backward(Tracer& tracer, const std::vector<at::Tensor>& arguments) {
  if (!is_plain(result_)) {
    tracer.refuse("it returns an object");
    return nullptr;
  }
  if (tracer.graph().node_count() > kMaxOperators) {
    tracer.refuse("it runs more than " + std::to_string(kMaxOperators) + " operators");
    return nullptr;
  }
  captured_ = BoundTensors(tracer.captured());
  std::vector<at::Tensor> tensors = arguments;
  tensors.insert(tensors.end(), tracer.captured().begin(), tracer.captured().end());
  std::vector<at::Tensor> results;
  for (const at::Tensor& result : tensors_in({result_})) {
    const auto is_same = [&](const at::Tensor& other) { return other.is_same(result); };
    const auto argument = std::ranges::find_if(arguments, is_same);
    const auto known = std::ranges::find_if(results, is_same);
    if (argument != arguments.end()) {
      returned_.push_back({.is_argument = true, .number = static_cast<size_t>(argument - arguments.begin())});
      continue;
    }
    returned_.push_back({.is_argument = false, .number = static_cast<size_t>(known - results.begin())});
    if (known == results.end()) {
      results.push_back(result);
    }
  }
  if (const char* reason = why_not_new(results, tensors)) {
    tracer.refuse(reason);
    return nullptr;
  }
  last_of_forward_ = tracer.graph().body().last();
  tracer.detach_without_gradients(false);
  auto plans = std::make_shared<JointPlans>();
  plans->results = results.size();
  for (const at::Tensor& result : results) {
    tracer.add_output(result);
  }
  const size_t reads = tracer.reads().size();
  for (const Tracer::Read& read : tracer.reads()) {
    tracer.graph().add_output(read.value);
    plans->reads.push_back(read.number);
  }
  std::vector<at::Tensor> differentiable;
  std::vector<at::Tensor> incoming;
  for (size_t i = 0; i < results.size(); ++i) {
    if (results[i].requires_grad()) {
      plans->differentiable_results.push_back(i);
      differentiable.push_back(results[i]);
      incoming.push_back(tracer.add_gradient(results[i]));
    }
  }
  note_order(results_below(differentiable), *plans);
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
    plans->why_no_backward = message_of(error);
    if (!std::ranges::all_of(differentiable, [&](const at::Tensor& result) { return has_freed_history(result, inputs); })) {
      tracer.refuse("backward raises: " + plans->why_no_backward);
      return nullptr;
    }
    plans->differentiable_tensors = positions;
  }
  // These gradients nobody has, but backward computes them and may raise, where autograd::grad does not.
  const std::vector<at::Tensor> others = other_leaves(differentiable, inputs);
  if (!others.empty() && plans->why_no_backward.empty()) {
    const RequiredGradients required(others);
    gradients_of(differentiable, others, incoming);
  }
  for (size_t i = 0; i < gradients.size(); ++i) {
    if (gradients[i].defined()) {
      plans->differentiable_tensors.push_back(positions[i]);
      tracer.add_output(gradients[i]);
    }
  }
  if (tracer.reads().size() != reads) {
    tracer.refuse("backward reads a number from a tensor");
  }
  if (tracer.captured().size() != captured_.tensors().size()) {
    tracer.refuse("backward reads a tensor that forward did not");
  }
  return plans;
}

std::shared_ptr<JointPlans> JointTrace::run_recorded(torch::jit::Stack call, bool has_history, RunMethod run_method,
                                                     Tracer& tracer) {
  const std::vector<c10::IValue> values(call.begin() + 1, call.end());
  const std::vector<at::Tensor> arguments = tensors_in(values);
  const TensorStates states(arguments, {});
  const BackwardOnThisThread on_this_thread;
  const TracingScope scope(tracer);
  try {
    run_method(call);
    result_ = std::move(call.front());
    if (std::string reason = states.refusal(); !reason.empty()) {
      tracer.refuse(std::move(reason));
    }
    if (share_containers(result_, values)) {
      tracer.refuse("it returns a list or a dict that is an argument");
    }
    if (tracer.refusal()) {
      return nullptr;
    }
    const bool runs_backward = tracer.runs_backward();
    if (runs_backward && has_history) {
      tracer.refuse("it computes gradients, which may flow through the history of an argument");
      return nullptr;
    }
    std::vector<size_t> marked = states.marked();
    std::shared_ptr<JointPlans> plans = record_backward(tracer, arguments);
    if (plans != nullptr) {
      plans->marked = std::move(marked);
      plans->runs_backward = runs_backward;
    }
    return plans;
  } catch (const std::exception& error) {
    // The call itself has succeeded. If the caller asks for gradients, backward raises this again.
    tracer.refuse(std::string("it raises while it is recorded: ") + error.what());
    return nullptr;
  }
}

std::shared_ptr<JointTrace> JointTrace::refused(const c10::intrusive_ptr<c10::ivalue::Object>& module,
                                                const CallArguments& arguments, std::string reason) {
  std::shared_ptr<JointTrace> trace(new JointTrace(module, arguments, /*is_tried=*/false));
  trace->pattern = SizePattern(arguments.key.sizes);
  trace->refusal = std::move(reason);
  return trace;
}

std::shared_ptr<JointTrace> JointTrace::rehearse(const c10::intrusive_ptr<c10::ivalue::Object>& module,
                                                 const CallArguments& arguments, const SizePattern& pattern, bool may_write,
                                                 const std::vector<size_t>& marked, RunMethod run_method,
                                                 const JointMethod& method, const Options& options) {
  // A program that waits for compiles wants the same plans in each of its runs.
  const bool is_tried = options.compile() != CompileMode::kBlocking;
  std::shared_ptr<JointTrace> trace(new JointTrace(module, arguments, is_tried));
  const auto sizes = pattern.has_symbols() ? std::make_shared<SymbolicSizes>(pattern.values()) : nullptr;
  trace->pattern = pattern;
  trace->guards = sizes;
  std::vector<at::Tensor> writable;
  if (may_write) {
    writable = tensors_in(c10::IValue(module));
    writable.insert(writable.end(), arguments.tensors.begin(), arguments.tensors.end());
  }
  UndoneWrites undone(writable);
  Tracer tracer(sizes);
  tracer.allow_reads();
  tracer.allow_marks();
  tracer.detach_without_gradients(true);
  torch::jit::Stack call = {module};
  for (c10::IValue& value : add_arguments(tracer, arguments, pattern, sizes)) {
    call.push_back(std::move(value));
  }
  const std::vector<at::Tensor> traced = tensors_in(std::vector<c10::IValue>(call.begin() + 1, call.end()));
  const bool has_history =
      !method.gradients_end_at_arguments &&
      std::ranges::any_of(arguments.tensors, [](const at::Tensor& tensor) { return !tensor.is_leaf(); });
  std::vector<at::Tensor> unmarked;
  for (const size_t number : marked) {
    unmarked.push_back(traced[number].set_requires_grad(false));
  }
  tracer.detach_before_marks(std::move(unmarked));
  auto plans = trace->run_recorded(std::move(call), has_history, run_method, tracer);
  if (!tracer.draws()) {
    undone.keep_generators();
  }
  if (hand_back_values(*module) || !trace->state_.holds()) {
    tracer.refuse("a call changes an attribute of the module");
  }
  refuse_gradients_of_others(tensors_in(c10::IValue(module)), tracer);
  tracer.refuse_captured(tensors_in(c10::IValue(module)));
  const at::Tensor placeholder = at::empty({0});
  trace->result_ = with_each_tensor(trace->result_, [&](const at::Tensor&) { return placeholder; });
  if (trace->captured_.share_memory_with(arguments.tensors)) {
    tracer.refuse("an argument shares memory with a parameter or a buffer");
  }
  if (tracer.refusal()) {
    trace->refusal = tracer.refusal()->reason;
    trace->captured_ = BoundTensors();
    return trace;
  }
  trace->why_sizes_are_fixed = sizes != nullptr ? sizes->why_pinned() : "";
  plans->name = method.name;
  plans->runs_backward = plans->runs_backward && !method.gradients_end_at_arguments;
  plans->pattern = pattern;
  plans->arguments = arguments.tensors.size();
  trace->compile(tracer, arguments, std::move(plans), options);
  return trace;
}

void JointTrace::compile(Tracer& tracer, const CallArguments& arguments, std::shared_ptr<JointPlans> plans,
                         const Options& options) {
  const size_t symbols = tracer.symbols();
  const size_t tensors = arguments.tensors.size() + captured_.tensors().size();
  const std::unique_ptr<Graph> recorded = tracer.finish(/*has_facts=*/true);
  RecordingParts parts =
      split_recording(*recorded, symbols, tensors, plans->results + plans->reads.size(), last_of_forward_);
  plans->needs = std::move(parts.needs);
  plans->saved_tensors = std::move(parts.saved_inputs);
  plans->saved_results = std::move(parts.saved_outputs);
  plans->reaches = std::move(parts.reaches);
  plans->shares = std::move(parts.shares);
  if (!plans->why_no_backward.empty()) {
    plans->reaches.assign(plans->differentiable_results.size(),
                          std::vector<bool>(plans->differentiable_tensors.size(), true));
  }
  plans->groups = groups_of(*plans);
  note_effects(*parts.forward, symbols, *plans);
  std::vector<at::Tensor> given = arguments.tensors;
  given.insert(given.end(), captured_.tensors().begin(), captured_.tensors().end());
  if (const char* reason = why_not_repeated(*plans, given, arguments.tensors.size())) {
    refusal = reason;
    return;
  }
  std::vector<size_t> positions;
  for (const size_t number : plans->cut) {
    positions.push_back(plans->differentiable_results[number]);
  }
  plans->operators = cut_at_results(*parts.forward, positions);
  if (plans->operators == nullptr) {
    refusal = "a result that others are computed from is written, and read through a view that was made before";
    return;
  }
  for (const Value* input : plans->operators->inputs().slice(symbols, tensors)) {
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
  if (plans->cut.empty() && !plans->draws) {
    plans->double_backward = std::make_unique<DoubleBackward>(*plans, options);
  }
  plans_ = std::move(plans);
}

std::optional<c10::IValue> JointTrace::run(const CallArguments& arguments, const std::vector<int64_t>& symbols) const {
  std::vector<at::Tensor> tensors = arguments.tensors;
  tensors.insert(tensors.end(), captured_.tensors().begin(), captured_.tensors().end());
  const std::optional<std::vector<at::Tensor>> results = JointNode::run(plans_, symbols, std::move(tensors));
  if (!results) {
    ++misses_;
    return std::nullopt;
  }
  auto returned = returned_.begin();
  return with_each_tensor(result_, [&](const at::Tensor&) {
    const Returned& source = *returned++;
    return source.is_argument ? arguments.tensors[source.number] : (*results)[source.number];
  });
}

}  // namespace sconce
