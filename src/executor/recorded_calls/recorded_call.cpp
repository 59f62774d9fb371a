#include "executor/recorded_calls/recorded_call.h"

#include "base/autocast.h"
#include "base/exception_message.h"
#include "base/tensors_in.h"
#include "executor/recorded_calls/operator_graph.h"
#include "executor/recorded_calls/result_checks.h"
#include "trace/backward_on_this_thread.h"
#include "trace/history.h"
#include "trace/tensor_state.h"
#include "trace/tracer.h"
#include "trace/tracing_conditions.h"
#include "trace/undone_writes.h"

#include <ATen/ops/empty.h>
#include <c10/core/GradMode.h>

#include <algorithm>
#include <iterator>
#include <numeric>
#include <unordered_map>
#include <utility>

namespace sconce {
namespace {

// Returns the parts of what the tracer has recorded, whose results are tensors of the trace and `values` of its graph.
Expected<std::vector<ResultPart>> parts_of(Tracer& tracer, size_t arguments, const std::vector<at::Tensor>& results,
                                           const std::vector<const Value*>& values) {
  std::vector<const Value*> differentiable;
  for (size_t i = 0; i < results.size(); ++i) {
    if (results[i].requires_grad()) {
      differentiable.push_back(values[i]);
    }
  }
  if (differentiable.size() < 2) {
    return std::vector<ResultPart>();
  }
  std::vector<const Value*> returned = values;
  for (const Tracer::Read& read : tracer.reads()) {
    returned.push_back(read.value);
  }
  return split_at_results(tracer.graph(), tracer.symbols() + arguments, returned, differentiable);
}

// A tensor that a part returns.
struct MadeTensor {
  at::Tensor real;
  bool requires_grad;
  std::optional<TensorFacts> facts;
  size_t number;  // among the tensors of the call
};

// Runs a part once more, by its operators, and records it with its backward.
struct PartRun {
  PartRun(const CallArguments& arguments, const std::vector<size_t>& marked, const PartSettings& of_call)
      : call(of_call), tracer(of_call.sizes), given(arguments.tensors), numbers(given.size()) {
    std::iota(numbers.begin(), numbers.end(), size_t{0});
    tracer.allow_reads();
    for (const c10::IValue& value : add_arguments(tracer, arguments, call.pattern, call.sizes)) {
      const std::vector<at::Tensor> tensors = tensors_in(std::vector<c10::IValue>{value});
      traced.insert(traced.end(), tensors.begin(), tensors.end());
    }
    for (const size_t number : marked) {
      traced[number].requires_grad_();
    }
  }

  // Adds what the part takes besides the arguments. Returns false if a plan cannot return one of these tensors as it is
  // here.
  bool add_operands(const ResultPart& part, const std::vector<at::Tensor>& captured_by_call,
                    const std::unordered_map<const Value*, MadeTensor>& made) {
    for (const Value* operand : part.operands) {
      const auto found = made.find(operand);
      if (found == made.end()) {
        captured.push_back(captured_by_call[operand->offset() - call.symbols - call.arguments]);
        continue;
      }
      const MadeTensor& tensor = found->second;
      if (!tensor.real.is_non_overlapping_and_dense()) {
        return false;
      }
      given.push_back(tensor.real);
      numbers.push_back(tensor.number);
      traced.push_back(tracer.add_leaf(tensor.real, tensor.facts).set_requires_grad(tensor.requires_grad));
    }
    return true;
  }

  PartRecording record(const ResultPart& part) {
    const BackwardOnThisThread on_this_thread;
    const TracingScope scope(tracer);
    torch::jit::Stack stack = symbols_of(call.pattern, std::span(traced).first(call.arguments));
    stack.insert(stack.end(), traced.begin(), traced.end());
    stack.insert(stack.end(), captured.begin(), captured.end());
    OperatorGraph(part.graph, call.name).run(stack);
    for (const c10::IValue& output : stack) {
      if (output.isTensor()) {
        results.push_back(output.toTensor());
      }
    }
    tracer.keep_contents(results);
    traced.insert(traced.end(), tracer.captured().begin(), tracer.captured().end());
    return record_gradients(tracer, results, traced);
  }

  // Notes which of the call's captured tensors the tracer has met, in its order.
  void number_captured(const std::vector<at::Tensor>& captured_by_call) {
    for (const at::Tensor& tensor : tracer.captured()) {
      const auto is_same = [&](const at::Tensor& other) { return other.is_same(tensor); };
      const auto found = std::ranges::find_if(captured_by_call, is_same);
      if (found == captured_by_call.end()) {
        tracer.refuse("it reads another tensor when it runs again");
        return;
      }
      given.push_back(tensor);
      numbers.push_back(call.arguments + static_cast<size_t>(found - captured_by_call.begin()));
    }
  }

  // Notes what the part has returned, numbered from `next` on.
  void note_made(const ResultPart& part, size_t& next, std::unordered_map<const Value*, MadeTensor>& made) const {
    auto result = results.begin();
    for (const Value* output : part.outputs) {
      if (output->type()->kind() != c10::TypeKind::TensorType) {
        continue;
      }
      const TensorFacts* facts = tracer.symbolic_facts(*result);
      made.emplace(output, MadeTensor{real_of(*result).detach(), result->requires_grad(),
                                      facts != nullptr ? std::optional(*facts) : std::nullopt, next++});
      ++result;
    }
  }

  const PartSettings& call;
  Tracer tracer;
  std::vector<at::Tensor> given;   // the part's tensors: arguments, what parts before return, captured ones
  std::vector<size_t> numbers;     // of these among the tensors of the call
  std::vector<at::Tensor> traced;  // of the trace, in the same order
  std::vector<at::Tensor> captured;
  std::vector<at::Tensor> results;  // of the trace
};

}  // namespace

bool sees_gradients(const at::Tensor& tensor) {
  if (!tensor.defined() || !tensor.requires_grad()) {
    return false;
  }
  const auto node = tensor.grad_fn();
  return has_hooks(tensor) ||
         (node != nullptr && (!node->tensor_pre_hooks().empty() || !node->retains_grad_hooks().empty()));
}

bool RecordedCall::holds(const c10::ivalue::Object& module, const CallArguments& arguments) const {
  return has_structure_of(module, arguments) && bound_.hold(captured_, arguments.tensors);
}

bool RecordedCall::has_hooks_within(const CallArguments& arguments) const {
  const auto is_hooked = [](const at::Tensor& tensor) { return sees_gradients(tensor); };
  return std::ranges::any_of(parts_, [](const Part& part) { return part.plans->runs_backward; }) &&
         (std::ranges::any_of(captured_, is_hooked) || std::ranges::any_of(arguments.tensors, is_hooked));
}

uint64_t RecordedCall::misses() const {
  uint64_t misses = CallRecording::misses();
  for (const Part& part : parts_) {
    misses += part.plans->function != nullptr ? part.plans->function->misses.load() : 0;
  }
  return misses;
}

bool RecordedCall::is_ready() const {
  return !parts_.empty() && !reads_others() &&
         std::ranges::all_of(parts_, [](const Part& part) { return part.plans->is_ready(); });
}

void RecordedCall::wait_for_compile() const {
  for (const Part& part : parts_) {
    part.plans->wait_for_compile();
  }
}

void RecordedCall::explain(std::vector<Explanation>& plans) const {
  for (const Part& part : parts_) {
    part.plans->explain(plans);
  }
}

std::shared_ptr<RecordedCall> RecordedCall::refused(const c10::intrusive_ptr<c10::ivalue::Object>& module,
                                                    const CallArguments& arguments, std::string reason) {
  std::shared_ptr<RecordedCall> trace(
      new RecordedCall(module, arguments, SizePattern(arguments.key.sizes), /*is_tried=*/false));
  trace->refusal = std::move(reason);
  return trace;
}

std::vector<at::Tensor> RecordedCall::collect_results(const std::vector<at::Tensor>& arguments, size_t captured) {
  std::vector<at::Tensor> results;
  for (const at::Tensor& result : tensors_in({result_})) {
    const auto is_same = [&](const at::Tensor& other) { return other.is_same(result); };
    if (const auto argument = std::ranges::find_if(arguments, is_same); argument != arguments.end()) {
      returned_.push_back(static_cast<size_t>(argument - arguments.begin()));
      continue;
    }
    const auto known = std::ranges::find_if(results, is_same);
    returned_.push_back(arguments.size() + captured + static_cast<size_t>(known - results.begin()));
    if (known == results.end()) {
      results.push_back(result);
    }
  }
  return results;
}

std::optional<RecordedCall::Rehearsal> RecordedCall::run_on_tracer(torch::jit::Stack call, bool has_history,
                                                                   RunMethod run_method, Tracer& tracer) {
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
    if (!is_plain(result_)) {
      tracer.refuse("it returns an object");
    }
    if (tracer.runs_backward() && has_history) {
      tracer.refuse("it computes gradients, which may flow through the history of an argument");
    }
    if (tracer.refusal()) {
      return std::nullopt;
    }
    Rehearsal rehearsal;
    rehearsal.marked = states.marked();
    rehearsal.runs_backward = tracer.runs_backward();
    tracer.keep_contents(tensors_in({result_}));
    captured_ = tracer.captured();
    std::vector<at::Tensor> tensors = arguments;
    tensors.insert(tensors.end(), tracer.captured().begin(), tracer.captured().end());
    const std::vector<at::Tensor> results = collect_results(arguments, captured_.size());
    if (const char* reason = why_not_new(results, tensors)) {
      tracer.refuse(reason);
      return std::nullopt;
    }
    for (const at::Tensor& result : results) {
      rehearsal.results.push_back(tracer.value_of(result));
    }
    auto parts = parts_of(tracer, arguments.size(), results, rehearsal.results);
    rehearsal.recording = record_gradients(tracer, results, tensors);
    if (!rehearsal.recording.why_no_backward.empty()) {
      return rehearsal;  // no node has a backward
    }
    if (!parts) {
      tracer.refuse(parts.refusal().reason);
      return std::nullopt;
    }
    rehearsal.parts = std::move(*parts);
    return rehearsal;
  } catch (const std::exception& error) {
    // The call itself has succeeded. If the caller asks for gradients, backward raises this again.
    tracer.refuse("it raises while it is recorded: " + message_of(error));
    return std::nullopt;
  }
}

std::shared_ptr<RecordedCall> RecordedCall::rehearse(const c10::intrusive_ptr<c10::ivalue::Object>& module,
                                                     const CallArguments& arguments, const SizePattern& pattern,
                                                     bool may_write, const std::vector<size_t>& marked, RunMethod run_method,
                                                     const RecordedMethod& method, const Options& options) {
  // A program that waits for compiles wants the same plans in each of its runs.
  const bool is_tried = options.compile() != CompileMode::kBlocking;
  std::shared_ptr<RecordedCall> trace(new RecordedCall(module, arguments, pattern, is_tried));
  std::vector<at::Tensor> writable;
  if (may_write) {
    writable = tensors_in(c10::IValue(module));
    writable.insert(writable.end(), arguments.tensors.begin(), arguments.tensors.end());
  }
  UndoneWrites undone(writable);
  const AutocastWithoutCache autocast;
  Tracer tracer(trace->sizes());
  tracer.allow_reads();
  tracer.allow_marks();
  tracer.detach_without_gradients(true);
  torch::jit::Stack call = {module};
  for (c10::IValue& value : trace->begin(tracer, arguments)) {
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
  std::optional<Rehearsal> rehearsal = trace->run_on_tracer(std::move(call), has_history, run_method, tracer);
  if (!tracer.draws()) {
    undone.keep_generators();
  }
  trace->check_call(tracer, module, arguments);
  const at::Tensor placeholder = at::empty({0});
  trace->result_ = with_each_tensor(trace->result_, [&](const at::Tensor&) { return placeholder; });
  trace->bound_ = BoundTensors(trace->captured_, arguments.tensors);
  if (trace->bound_.share_memory_with(arguments.tensors)) {
    tracer.refuse("an argument shares memory with a parameter or a buffer");
  }
  if (tracer.refusal()) {
    trace->refusal = tracer.refusal()->reason;
  } else {
    rehearsal->runs_backward = rehearsal->runs_backward && !method.gradients_end_at_arguments;
    const PartSettings recorded{.name = method.name,
                                .symbols = tracer.symbols(),
                                .pattern = pattern,
                                .arguments = arguments.tensors.size(),
                                .sizes = trace->sizes(),
                                .options = options};
    if (rehearsal->parts.empty()) {
      trace->add_whole(*rehearsal, arguments, tracer, recorded);
    } else {
      undone.undo();
      const UndoneWrites of_parts(writable);
      trace->add_parts(*rehearsal, arguments, recorded);
    }
  }
  if (!trace->refusal.empty()) {
    trace->captured_.clear();
    trace->bound_ = BoundTensors();
    trace->parts_.clear();
  } else {
    trace->why_sizes_are_fixed = trace->sizes() != nullptr ? trace->sizes()->why_pinned() : "";
  }
  return trace;
}

void RecordedCall::add_whole(Rehearsal& rehearsal, const CallArguments& arguments, Tracer& tracer,
                             const PartSettings& call) {
  std::vector<at::Tensor> given = arguments.tensors;
  given.insert(given.end(), captured_.begin(), captured_.end());
  std::vector<size_t> numbers(given.size());
  std::iota(numbers.begin(), numbers.end(), size_t{0});
  add_part(rehearsal, std::move(rehearsal.recording), tracer.finish(/*has_facts=*/true), given, std::move(numbers), call);
}

void RecordedCall::add_part(const Rehearsal& rehearsal, PartRecording recording, std::unique_ptr<Graph> recorded,
                            std::span<const at::Tensor> given, std::vector<size_t> numbers, const PartSettings& call) {
  auto part = compile_recording(std::move(recording), std::move(recorded), given, call);
  if (!part) {
    refusal = part.refusal().reason;
    return;
  }
  (*part)->runs_backward = rehearsal.runs_backward;
  if (parts_.empty()) {
    (*part)->marked = rehearsal.marked;
  }
  parts_.push_back({std::move(*part), std::move(numbers)});
}

void RecordedCall::add_parts(Rehearsal& rehearsal, const CallArguments& arguments, const PartSettings& call) {
  std::unordered_map<const Value*, MadeTensor> made;
  const size_t first_made = call.arguments + captured_.size();
  size_t next = first_made;
  for (const ResultPart& part : rehearsal.parts) {
    PartRun run(arguments, rehearsal.marked, call);
    if (!run.add_operands(part, captured_, made)) {
      refusal = "what several of its results are computed from is a tensor whose elements have gaps or overlap";
      return;
    }
    PartRecording recording;
    try {
      recording = run.record(part);
    } catch (const std::exception& error) {
      refusal = "it raises while it is recorded: " + message_of(error);
      return;
    }
    run.number_captured(captured_);
    if (run.tracer.refusal()) {
      refusal = run.tracer.refusal()->reason;
      return;
    }
    run.note_made(part, next, made);
    add_part(rehearsal, std::move(recording), run.tracer.finish(/*has_facts=*/true), run.given, std::move(run.numbers),
             call);
    if (!refusal.empty()) {
      return;
    }
  }
  for (size_t& number : returned_) {
    if (number >= first_made) {
      number = made.at(rehearsal.results[number - first_made]).number;
    }
  }
}

bool RecordedCall::run_parts(const std::vector<int64_t>& symbols, std::vector<at::Tensor>& tensors) const {
  for (const Part& part : parts_) {
    torch::jit::Stack operands;
    operands.reserve(symbols.size() + part.tensors.size());
    operands.insert(operands.end(), symbols.begin(), symbols.end());
    for (const size_t number : part.tensors) {
      operands.emplace_back(tensors[number]);
    }
    std::optional<std::vector<at::Tensor>> results = part.plans->run(std::move(operands), symbols.size());
    if (!results) {
      return false;
    }
    tensors.insert(tensors.end(), std::make_move_iterator(results->begin()), std::make_move_iterator(results->end()));
  }
  return true;
}

CallRecording::Effects RecordedCall::effects_on(const std::vector<at::Tensor>& tensors) const {
  Effects effects;
  for (const Part& part : parts_) {
    effects.draws = effects.draws || part.plans->draws;
    for (const size_t position : part.plans->written) {
      if (const size_t number = part.tensors[position]; number < tensors.size()) {  // not what a part returns
        effects.written.push_back(tensors[number]);
      }
    }
  }
  for (const size_t number : parts_.front().plans->marked) {
    if (!tensors[number].requires_grad()) {
      effects.marked.push_back(tensors[number]);
    }
  }
  return effects;
}

std::optional<c10::IValue> RecordedCall::run(const CallArguments& arguments, const std::vector<int64_t>& symbols) const {
  std::vector<at::Tensor> tensors = arguments.tensors;
  tensors.insert(tensors.end(), captured_.begin(), captured_.end());
  const auto run_all = [&] { return run_parts(symbols, tensors); };
  const bool reads = std::ranges::any_of(parts_, [](const Part& part) { return !part.plans->reads.empty(); });
  if (!(reads ? run_undoably(effects_on(tensors), run_all) : run_all())) {
    return std::nullopt;
  }
  auto returned = returned_.begin();
  return with_each_tensor(result_, [&](const at::Tensor&) { return tensors[*returned++]; });
}

}  // namespace sconce
