#include "training/step/train_trace.h"

#include "analysis/effects.h"
#include "analysis/memory/memory_source.h"
#include "base/same_number.h"
#include "base/tensors_in.h"
#include "trace/backward_on_this_thread.h"
#include "trace/history.h"
#include "trace/tensor_state.h"
#include "trace/tracer.h"
#include "trace/tracing_conditions.h"
#include "training/backward/node_hooks.h"
#include "training/step/place_clip.h"

#include <c10/core/impl/LocalDispatchKeySet.h>
#include <c10/util/ScopeExit.h>
#include <torch/csrc/autograd/autograd.h>
#include <torch/csrc/autograd/functions/accumulate_grad.h>
#include <torch/csrc/autograd/variable.h>

#include <algorithm>
#include <iterator>
#include <utility>

namespace sconce {
namespace {

// Gradients that are still in the cache of a GPU when they are used.
constexpr size_t kGatheredBytes = size_t{16} << 20;

// Returns the gradients of the leaves; undefined ones of those that the call has told to require none.
std::vector<at::Tensor> gradients_of(const at::Tensor& loss, const std::vector<at::Tensor>& leaves, const at::Tensor& seed) {
  std::vector<at::Tensor> gradients(leaves.size());
  std::vector<at::Tensor> inputs;
  std::vector<size_t> numbers;
  for (size_t i = 0; i < leaves.size(); ++i) {
    if (leaves[i].requires_grad()) {
      inputs.push_back(leaves[i]);
      numbers.push_back(i);
    }
  }
  if (inputs.empty()) {
    return gradients;
  }
  std::vector<at::Tensor> seeds;
  if (seed.defined()) {
    seeds.push_back(seed_of(loss, seed));
  }
  std::vector<at::Tensor> found =
      torch::autograd::grad({loss}, inputs, seeds, /*retain_graph=*/false, /*create_graph=*/false,
                            /*allow_unused=*/true);
  for (size_t i = 0; i < found.size(); ++i) {
    gradients[numbers[i]] = std::move(found[i]);
  }
  return gradients;
}

// Replaces `count` outputs, from `first` on, by other values.
void return_instead(Graph& graph, size_t first, size_t count, c10::ArrayRef<Value*> values) {
  const std::vector<Value*> after = graph.outputs().slice(first + count).vec();
  while (graph.outputs().size() > first) {
    graph.body().remove_return(graph.outputs().size() - 1);
  }
  for (Value* value : values) {
    graph.add_output(value);
  }
  for (Value* value : after) {
    graph.add_output(value);
  }
}

// Gives the tensors of the trace the gradients of the arguments, which a backward in the script adds to.
void hand_over_gradients(const std::vector<at::Tensor>& arguments, const std::vector<at::Tensor>& traced) {
  for (size_t i = 0; i < arguments.size(); ++i) {
    if (arguments[i].is_leaf() && arguments[i].grad().defined()) {
      traced[i].mutable_grad() = arguments[i].grad();
    }
  }
}

// Copies autograd state that the recorded call changed on tensors of the trace to the arguments and the module.
void hand_back_autograd(const std::vector<at::Tensor>& arguments, const std::vector<at::Tensor>& traced,
                        const Module& module) {
  for (size_t i = 0; i < arguments.size(); ++i) {
    hand_back_form(arguments[i], traced[i]);
    for (int64_t writes = arguments[i].is_inference() ? 0 : traced[i]._version(); writes > 0; --writes) {
      arguments[i].unsafeGetTensorImpl()->bump_version();
    }
    if (!arguments[i].is_leaf() || !traced[i].is_leaf()) {
      continue;
    }
    if (arguments[i].requires_grad() != traced[i].requires_grad()) {
      arguments[i].set_requires_grad(traced[i].requires_grad());
    }
    if (!traced[i].grad().is_same(arguments[i].grad())) {
      arguments[i].mutable_grad() = traced[i].grad().defined() ? real_of(traced[i].grad()).detach() : at::Tensor();
    }
  }
  for (const at::Tensor& tensor : tensors_in(c10::IValue(module.script_module()._ivalue()))) {
    if (tensor.is_leaf() && tensor.grad().defined() && TraceTensor::of(tensor.grad()) != nullptr) {
      tensor.mutable_grad() = real_of(tensor.grad()).detach();  // a backward in the script made it
    }
  }
}

}  // namespace

at::Tensor seed_of(const at::Tensor& loss, const at::Tensor& seed) {
  return seed.to(loss.scalar_type()).expand(loss.sizes());
}

StepArguments::StepArguments(const std::vector<c10::IValue>& given, const std::vector<c10::IValue>& targets)
    : CallArguments([&] {
        std::vector<c10::IValue> all = given;
        all.insert(all.end(), targets.begin(), targets.end());
        return all;
      }()),
      inputs(given.size()) {}

TrainTrace::TrainTrace(const Module& module, const StepArguments& arguments, const SizePattern& of_sizes,
                       const std::vector<at::Tensor>& parameters)
    : CallRecording(module.script_module()._ivalue(), arguments, of_sizes),
      inputs_(arguments.inputs),
      leaves_(parameters),
      parameters_(parameters.size()) {}

std::vector<at::Tensor> TrainTrace::own_operands() const {
  std::vector<at::Tensor> operands = captured_;
  operands.insert(operands.end(), exchanged_.begin(), exchanged_.end());
  if (update_ != nullptr) {
    operands.insert(operands.end(), update_->states().begin(), update_->states().end());
  }
  return operands;
}

void TrainTrace::explain(std::vector<Explanation>& plans) const {
  if (plan_ != nullptr) {
    plans.push_back(plan_->explain());
  }
}

void TrainTrace::wait_for_compile() const {
  if (plan_ != nullptr) {
    plan_->wait_for_compile();
  }
}

bool TrainTrace::holds(const c10::ivalue::Object& module, const StepArguments& arguments,
                       const TrainedParameters& parameters) {
  const auto are_bound = [&](const std::vector<at::Tensor>& own) {
    return bound_.hold(own, arguments.tensors) || bound_.rebind(own, arguments.tensors);
  };
  const auto is_same = [](const at::Tensor& a, const at::Tensor& b) { return a.is_same(b); };
  const auto others = leaves_.begin() + static_cast<std::ptrdiff_t>(parameters_);
  return has_structure_of(module, arguments) && arguments.inputs == inputs_ &&
         std::equal(parameters.tensors.begin(), parameters.tensors.end(), leaves_.begin(), others, is_same) &&
         (others == leaves_.end() || why_not_now({others, leaves_.end()}) == nullptr) &&
         (update_ == nullptr || update_->begin(updated(parameters))) && are_bound(own_operands());
}

// Eager training adds gradients to all leaves, also to those that no optimizer steps.
std::vector<at::Tensor> TrainTrace::add_other_leaves(const at::Tensor& loss, const std::vector<at::Tensor>& arguments) {
  std::vector<bool> is_reached(arguments.size(), false);
  std::vector<at::Tensor> made;
  for (const at::Tensor& leaf : leaves_of({loss})) {
    const auto is_same = [&](const at::Tensor& other) { return other.is_same(leaf); };
    if (!leaf.requires_grad()) {
      made.push_back(leaf);
    } else if (const auto argument = std::ranges::find_if(arguments, is_same); argument != arguments.end()) {
      is_reached[static_cast<size_t>(argument - arguments.begin())] = true;
    } else if (TraceTensor::of(leaf) != nullptr) {
      made.push_back(leaf);
    } else if (std::ranges::none_of(leaves_, is_same)) {
      leaves_.push_back(leaf);
    }
  }
  for (size_t i = 0; i < arguments.size(); ++i) {
    if (is_reached[i]) {
      arguments_.push_back(i);
    }
  }
  return made;
}

void TrainTrace::run_on_tracer(const TrainedMethod& method, const TrainStep::GeneralLoss& loss,
                               const std::vector<c10::IValue>& traced, const at::Tensor& seed, Tracer& tracer,
                               StepResult& result) {
  const std::vector<at::Tensor> arguments = tensors_in(traced);
  const TensorStates states(arguments, tensors_in(c10::IValue(method.module.script_module()._ivalue())));
  const BackwardOnThisThread on_this_thread;
  const TracingScope scope(tracer);
  const auto first_target = traced.begin() + static_cast<std::ptrdiff_t>(inputs_);
  // A plan does not repeat what the loss function does with a number that it reads, such as adding it to a metric.
  tracer.allow_reads();
  const c10::IValue output = method({traced.begin(), first_target});
  tracer.allow_reads(false);
  const at::Tensor value = loss(output, {first_target, traced.end()});
  tracer.allow_reads();
  if (history_has_hooks({value})) {
    tracer.refuse("the model or the loss function registers a hook on a tensor that it computes");
  }
  if (std::string reason = states.refusal(); !reason.empty()) {
    tracer.refuse(std::move(reason));
  }
  marked_ = states.marked();
  const std::vector<at::Tensor> made = add_other_leaves(value, arguments);
  std::vector<at::Tensor> leaves = leaves_;
  for (const size_t number : arguments_) {
    leaves.push_back(arguments[number]);
  }
  leaves.insert(leaves.end(), made.begin(), made.end());  // backward to them may raise
  std::vector<bool> is_dropped;                           // autograd drops the gradient of a leaf whose mark was taken back
  std::ranges::transform(leaves_, std::back_inserter(is_dropped),
                         [](const at::Tensor& leaf) { return !leaf.requires_grad(); });
  std::vector<at::Tensor> gradients;
  {
    const RequiredGradients required(made);
    gradients = gradients_of(value, leaves, seed);
  }
  for (size_t i = 0; i < is_dropped.size(); ++i) {
    gradients[i] = is_dropped[i] ? at::Tensor() : gradients[i];
  }
  result.loss = real_of(value).detach();
  tracer.add_output(value.detach());
  for (size_t i = 0; i < arguments_.size(); ++i) {
    // Nothing that the plan writes afterwards is the caller's.
    const at::Tensor gradient = gradients[leaves_.size() + i].clone();
    result.of_arguments.emplace_back(arguments_[i], real_of(gradient));
    tracer.add_output(gradient);
  }
  gradients.resize(leaves_.size());
  for (size_t i = 0; i < gradients.size(); ++i) {
    result.gradients.push_back(gradients[i].defined() ? real_of(gradients[i]) : at::Tensor());
    if (gradients[i].defined()) {
      tracer.add_output(gradients[i]);
      gradients_.push_back(i);
    }
  }
  for (const Tracer::Read& read : tracer.reads()) {
    tracer.graph().add_output(read.value);
    reads_.push_back(read.number);
  }
}

std::vector<ReductionExplanation> TrainTrace::reductions() const {
  return is_ready() && reductions_ != nullptr ? *reductions_ : std::vector<ReductionExplanation>();
}

std::shared_ptr<TrainTrace> TrainTrace::refused(const Module& module, const StepArguments& arguments,
                                                const TrainedParameters& parameters, const SizePattern& pattern,
                                                std::string reason) {
  std::shared_ptr<TrainTrace> trace(new TrainTrace(module, arguments, pattern, parameters.tensors));
  trace->refusal = std::move(reason);
  trace->bound_ = BoundTensors(trace->own_operands(), arguments.tensors);
  return trace;
}

TraceSettings::Complete TrainTrace::end_with_update(Graph& graph, const StepEnding& ending, size_t symbols,
                                                    const std::vector<at::Tensor>& arguments,
                                                    const TrainedParameters& parameters,
                                                    const std::vector<at::Tensor>& gradients, bool is_exact) {
  const bool has_ranks = ending.buckets != nullptr;
  // A parameter without a gradient may have one on another rank.
  const bool has_all = !has_ranks || gradients_.size() == parameters.tensors.size();
  const bool has_others = leaves_.size() > parameters_;
  if (!ending.plans_update || has_others || !has_all || gradients_.empty() || !reads_.empty()) {
    return {};
  }
  shards_ = ending.shards;
  std::vector<at::Tensor> operands = arguments;
  operands.insert(operands.end(), captured_.begin(), captured_.end());
  const size_t first_bucket = symbols + operands.size();
  const auto exchange = [&](const std::vector<at::Tensor>& tensors) {
    exchanged_.insert(exchanged_.end(), tensors.begin(), tensors.end());
  };
  if (has_ranks) {
    exchange(ending.buckets->tensors());
    exchange(ending.buckets->views());
  }
  const size_t first_segment = first_bucket + exchanged_.size();
  if (shards_ != nullptr) {
    exchange(shards_->gradients());
    exchange(shards_->segments().tensors);
  }
  operands.insert(operands.end(), exchanged_.begin(), exchanged_.end());
  update_ = StepUpdate::make(ending.optimizer, updated(parameters), operands,
                             shards_ != nullptr ? shards_->gradients() : gradients, ending.clipping);
  if (update_ == nullptr) {
    exchanged_.clear();
    return {};
  }
  for (const at::Tensor& tensor : exchanged_) {
    graph.add_input({}, c10::TensorType::get())->set_facts(facts_of(tensor));
  }
  const size_t kept = 1 + arguments_.size();
  const StepUpdates updates = update_->declare(graph, symbols, kept);
  StepReductions reductions;
  if (has_ranks) {
    buckets_ = ending.buckets;
    reductions_ = std::make_shared<std::vector<ReductionExplanation>>();
    reductions.group = ending.group;
    const auto& buckets = buckets_->layout().buckets;
    for (size_t i = 0; i < buckets.size(); ++i) {
      StepReductions::Bucket& bucket = reductions.buckets.emplace_back();
      bucket.tensor = first_bucket + i;
      bucket.bytes = buckets_->tensors()[i].nbytes();
      for (const BucketLayout::Member& member : buckets[i].members) {
        bucket.members.push_back({kept + member.parameter, first_bucket + buckets.size() + member.parameter});
      }
    }
  }
  const size_t segments = shards_ != nullptr ? shards_->gradients().size() : 0;
  const size_t trained = parameters.tensors.size();
  const size_t gathered = parameters.tensors.front().is_cpu() ? 0 : kGatheredBytes;
  return [=, placed = reductions_](Graph& whole, bool has_kernels, PassRunner& runner) {
    if (placed != nullptr) {
      *placed = place_reductions(whole, reductions);
    }
    if (updates.clipping.norm) {
      place_clip(whole, kept, *updates.clipping.norm, reductions.group, has_kernels, runner);
    }
    if (segments > 0) {
      return_instead(whole, kept, trained, whole.inputs().slice(first_segment, segments));
    }
    place_updates(whole, updates, has_kernels, is_exact, gathered, runner);
  };
}

std::shared_ptr<TrainTrace> TrainTrace::record(const TrainedMethod& method, const Options& options,
                                               const TrainStep::GeneralLoss& loss, const StepArguments& arguments,
                                               const TrainedParameters& parameters, const SizePattern& pattern,
                                               const StepEnding& ending, StepResult& result) {
  const Module& module = method.module;
  std::shared_ptr<TrainTrace> trace(new TrainTrace(module, arguments, pattern, parameters.tensors));
  Tracer tracer(trace->sizes());
  tracer.allow_marks();
  const std::vector<c10::IValue> traced = trace->begin(tracer, arguments);
  hand_over_gradients(arguments.tensors, tensors_in(traced));
  const auto hand_back = c10::make_scope_exit([&] { hand_back_autograd(arguments.tensors, tensors_in(traced), module); });
  trace->run_on_tracer(method, loss, traced, ending.seed, tracer, result);
  if (const char* reason = why_never_recorded(method.graph())) {
    tracer.refuse(reason);
  }
  std::vector<at::Tensor> owned = parameters.tensors;
  if (ending.seed.defined()) {
    owned.push_back(ending.seed);
  }
  trace->check_call(tracer, module.script_module()._ivalue(), arguments, owned);
  trace->captured_ = tracer.captured();
  if (tracer.refusal()) {
    trace->refusal = tracer.refusal()->reason;
    trace->bound_ = BoundTensors(trace->own_operands(), arguments.tensors);
    return trace;
  }
  trace->why_sizes_are_fixed = trace->sizes() != nullptr ? trace->sizes()->why_pinned() : "";
  const TraceSizes captured_sizes = trace->sizes() != nullptr ? TraceSizes::of(*trace->sizes()) : TraceSizes();
  trace->draws_ = tracer.draws();
  std::unique_ptr<Graph> graph = tracer.finish(/*has_facts=*/true);
  if (!trace->reads_.empty()) {
    trace->written_ = written_inputs(*graph);
  }
  TraceSettings::Complete complete = trace->end_with_update(*graph, ending, tracer.symbols(), arguments.tensors, parameters,
                                                            result.gradients, options.exact());
  trace->bound_ = BoundTensors(trace->own_operands(), arguments.tensors);
  trace->plan_ = CompiledTrace::make(std::move(graph), "train step", options,
                                     {.sizes = captured_sizes, .complete = std::move(complete)});
  if (trace->update_ != nullptr) {
    trace->update_->drop();  // states of the optimizer, or new ones in their places: `holds` reads them for each call
  }
  return trace;
}

bool TrainTrace::run_plan(torch::jit::Stack& stack) const {
  if (reads_.empty()) {
    plan_->run(stack);
    return true;
  }
  Effects effects{.draws = draws_};
  for (const size_t input : written_) {
    effects.written.push_back(stack[input].toTensor());
  }
  return run_undoably(effects, [&] {
    plan_->run(stack);
    return std::equal(reads_.begin(), reads_.end(), stack.end() - static_cast<std::ptrdiff_t>(reads_.size()),
                      is_same_number);
  });
}

std::optional<StepResult> TrainTrace::run(const StepArguments& arguments, const std::vector<int64_t>& symbols) {
  torch::jit::Stack stack(symbols.begin(), symbols.end());
  stack.insert(stack.end(), arguments.tensors.begin(), arguments.tensors.end());
  stack.insert(stack.end(), captured_.begin(), captured_.end());
  StepResult result;
  const auto take_results = [&] {
    for (const size_t number : marked_) {
      arguments.tensors[number].requires_grad_();
    }
    result.loss = std::move(stack.front()).toTensor();
    for (size_t i = 0; i < arguments_.size(); ++i) {
      result.of_arguments.emplace_back(arguments_[i], std::move(stack[i + 1]).toTensor());
    }
  };
  if (update_ != nullptr) {
    const auto drop_states = c10::make_scope_exit([this] { update_->drop(); });
    stack.insert(stack.end(), exchanged_.begin(), exchanged_.end());
    update_->add_arguments(stack, symbols.size());
    if (buckets_ != nullptr) {
      buckets_->note_all_used();
    }
    if (shards_ != nullptr) {
      shards_->load();
    }
    plan_->run(stack);
    update_->end();
    if (shards_ != nullptr) {
      shards_->gather();
    }
    result.is_updated = true;
    take_results();
    return result;
  }
  if (!run_plan(stack)) {
    return std::nullopt;
  }
  take_results();
  result.gradients.resize(leaves_.size());
  for (size_t i = 0; i < gradients_.size(); ++i) {
    result.gradients[gradients_[i]] = std::move(stack[i + 1 + arguments_.size()]).toTensor();
  }
  return result;
}

}  // namespace sconce
