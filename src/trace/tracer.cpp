#include "trace/tracer.h"

#include "analysis/effects.h"
#include "base/assert.h"
#include "base/compiled_meta_kernels.h"
#include "ops/foreign.h"
#include "trace/traceable.h"
#include "trace/tracing_conditions.h"

#include <ATen/Context.h>
#include <ATen/core/LegacyTypeDispatch.h>
#include <ATen/core/enum_tag.h>
#include <ATen/core/grad_mode.h>
#include <ATen/core/jit_type.h>
#include <ATen/ops/ones_like.h>
#include <c10/core/GradMode.h>
#include <c10/core/InferenceMode.h>
#include <torch/csrc/autograd/graph_task.h>
#include <torch/csrc/autograd/variable.h>
#include <torch/library.h>

#include <algorithm>
#include <mutex>
#include <optional>
#include <utility>

namespace sconce {
namespace {

constexpr const char* kRanElsewhere = "an operator ran on another thread, where the tracer does not see it";

thread_local Tracer* current_tracer = nullptr;

void run_unrecorded(const c10::OperatorHandle& op, torch::jit::Stack& stack) {
  const PausedTracing paused;
  const at::AutoDispatchBelowADInplaceOrView below_autograd;
  op.callBoxed(stack);
}

// Sees an operator above autograd, where composed ones are not taken apart yet.
void watch(const c10::OperatorHandle& op, c10::DispatchKeySet keys, torch::jit::Stack* stack) {
  if (current_tracer != nullptr) {
    if (current_tracer->run_whole(op, *stack)) {
      return;
    }
  } else if (may_do_more_than_compute(op)) {
    const std::string what = call_of_library(op);
    CallWatch::is_on() ? CallWatch::note(what) : CallWatch::note_for_all(what);
  }
  std::optional<NumelAsksWhetherEmpty> counting;
  if (current_tracer != nullptr && counts_to_see_whether_empty(op)) {
    counting.emplace();
  }
  op.redispatchBoxed(keys & c10::DispatchKeySet(c10::DispatchKeySet::FULL_AFTER, kWatchKey), stack);
}

void record(const c10::OperatorHandle& op, c10::DispatchKeySet keys, torch::jit::Stack* stack) {
  if (CompiledMetaKernels::is_active()) {
    CompiledMetaKernels::run(op, keys, *stack);
    return;
  }
  if (current_tracer != nullptr) {
    if (current_tracer->is_differentiated_within(op, *stack)) {
      op.redispatchBoxed(keys & c10::DispatchKeySet(c10::DispatchKeySet::FULL_AFTER, c10::DispatchKey::Fake), stack);
    } else {
      current_tracer->run(op, *stack);
    }
    return;
  }
  const auto first = stack->end() - static_cast<std::ptrdiff_t>(op.schema().arguments().size());
  if (c10::impl::tls_is_dispatch_key_included(c10::DispatchKey::Fake)) {
    TracingScope::refuse({}, kRanElsewhere);  // that of the thread that started this one is not known
  }
  std::for_each(first, stack->end(), [](const c10::IValue& value) {
    const TraceTensor* traced = value.isTensor() ? TraceTensor::of(value.toTensor()) : nullptr;
    if (traced != nullptr) {
      TracingScope::refuse(traced->tracer(), kRanElsewhere);
    }
  });
  // Otherwise the trace has ended: autograd saved its tensors, and now computes gradients with them.
  std::transform(first, stack->end(), first, without_trace);
  run_unrecorded(op, *stack);
}

TORCH_LIBRARY_IMPL(_, TESTING_ONLY_GenericMode, library) {
  library.fallback(torch::CppFunction::makeFromBoxedFunction<&watch>());
}
TORCH_LIBRARY_IMPL(_, Fake, library) { library.fallback(torch::CppFunction::makeFromBoxedFunction<&record>()); }

// Returns the argument that a result is: the one that the schema marks as written and returned, or one that the operator
// returned although nothing marks it. As in eager execution, both are then one tensor.
const c10::IValue* argument_returned(const c10::FunctionSchema& schema, size_t result, const c10::IValue& real,
                                     const std::vector<c10::IValue>& given, const std::vector<c10::IValue>& reals) {
  const c10::AliasInfo* mark = schema.returns()[result].alias_info();
  for (size_t i = 0; i < given.size(); ++i) {
    const c10::AliasInfo* written = schema.arguments()[i].alias_info();
    const bool is_marked = mark != nullptr && mark->isWrite() && written != nullptr && written->isWrite() &&
                           written->beforeSets() == mark->beforeSets();
    const bool is_same =
        real.isTensor() && real.toTensor().defined() && reals[i].isTensor() && reals[i].toTensor().is_same(real.toTensor());
    if (is_marked || is_same) {
      return &given[i];
    }
  }
  return nullptr;
}

// Returns the sizes and strides of the tensors among the values.
std::vector<std::vector<int64_t>> forms_of(const std::vector<c10::IValue>& values) {
  std::vector<std::vector<int64_t>> forms;
  for (const c10::IValue& value : values) {
    if (value.isTensor() && value.toTensor().defined() && value.toTensor().layout() == c10::kStrided) {
      forms.push_back(value.toTensor().sizes().vec());
      forms.push_back(value.toTensor().strides().vec());
    }
  }
  return forms;
}

}  // namespace

at::Tensor real_of(const at::Tensor& tensor) {
  const TraceTensor* traced = TraceTensor::of(tensor);
  return traced != nullptr ? traced->real() : tensor;
}

// ---- TracingScope -------------------------------------------------------------------------------------------------

// The tracers of all threads.
struct ActiveTracers {
  std::mutex mutex;
  std::unordered_multiset<Tracer*> tracers;
  static ActiveTracers& get() {
    static auto& active = *new ActiveTracers();
    return active;
  }
};

TracingScope::TracingScope(Tracer& tracer)
    : tracer_(tracer),
      outer_(std::exchange(current_tracer, &tracer)),
      include_(c10::DispatchKeySet(c10::DispatchKey::Fake)) {
  ActiveTracers& active = ActiveTracers::get();
  const std::lock_guard<std::mutex> lock(active.mutex);
  active.tracers.insert(&tracer);
}

TracingScope::~TracingScope() {
  if (const std::string seen = watch_.seen(); !seen.empty()) {
    tracer_.refuse(seen);
  }
  current_tracer = outer_;
  ActiveTracers& active = ActiveTracers::get();
  const std::lock_guard<std::mutex> lock(active.mutex);
  active.tracers.erase(active.tracers.find(&tracer_));
}

Tracer* TracingScope::current() { return current_tracer; }

void TracingScope::refuse(std::optional<uint64_t> number, const char* reason) {
  ActiveTracers& active = ActiveTracers::get();
  const std::lock_guard<std::mutex> lock(active.mutex);
  for (Tracer* tracer : active.tracers) {
    if (!number || tracer->number_ == *number) {
      tracer->refused_outside_ = reason;
    }
  }
}

// ---- Tracer -------------------------------------------------------------------------------------------------------

Tracer::Tracer(std::shared_ptr<SymbolicSizes> sizes)
    : number_([] {
        static std::atomic<uint64_t> last{0};
        return ++last;
      }()),
      grad_mode_(c10::GradMode::is_enabled()),
      inference_mode_(c10::InferenceMode::is_enabled()) {
  if (sizes != nullptr) {
    shapes_.emplace(std::move(sizes));
    for (size_t i = 0; i < shapes_->sizes().values().size(); ++i) {
      shapes_->set_number(*graph_->add_input({}, c10::IntType::get()), Dim::symbol(static_cast<int64_t>(i + 1)));
    }
  }
}

at::Tensor Tracer::add_saved(const at::Tensor& real, const std::optional<TensorFacts>& symbolic) {
  is_saved_ = true;
  Value* input = add_input(real, symbolic);
  return wrap(real.variable_data(), input).set_requires_grad(real.requires_grad());
}

at::Tensor Tracer::add_gradient(const at::Tensor& like) {
  const PausedTracing paused;
  const at::NoGradGuard no_grad;
  const at::Tensor real = at::ones_like(real_of(like));
  const TensorFacts* facts = symbolic_facts(like);
  Value* input =
      add_input(real, facts != nullptr ? std::optional(facts_of_sizes(real, *facts->sizes, shapes_->sizes().arithmetic()))
                                       : std::nullopt);
  is_saved_ = true;
  return wrap(real, input);
}

const TensorFacts* Tracer::symbolic_facts(const at::Tensor& tensor) const {
  const TraceTensor* traced = TraceTensor::of(tensor);
  return shapes_ && traced != nullptr && traced->value() != nullptr ? shapes_->of(*traced->value()) : nullptr;
}

Value* Tracer::add_input(const at::Tensor& real, const std::optional<TensorFacts>& symbolic) {
  inputs_.push_back(real);
  Value* input = graph_->add_input({}, c10::TensorType::get());
  if (shapes_) {
    shapes_->set_tensor(*input, symbolic ? *symbolic : facts_without_autograd(real), real);
  }
  return input;
}

at::Tensor Tracer::wrap(at::Tensor real, Value* value, TraceTensor::Memory memory) const {
  auto geometry = shapes_ && value != nullptr ? shapes_->geometry_of(*value, real) : nullptr;
  // In inference mode, too, a view of an ordinary tensor is one, and counts versions.
  const c10::InferenceMode mode(real.is_inference());
  return at::Tensor(c10::make_intrusive<TraceTensor>(std::move(real), value, number_, memory, std::move(geometry)));
}

Value* Tracer::value_of(const at::Tensor& tensor) {
  if (const TraceTensor* traced = TraceTensor::of(tensor); traced != nullptr && traced->tracer() == number_) {
    return traced->value();
  }
  Value*& value = captured_values_[tensor.unsafeGetTensorImpl()];
  if (value == nullptr) {
    captured_.push_back(tensor);
    value = add_input(tensor, std::nullopt);
  }
  return value;
}

void Tracer::refuse_captured(std::span<const at::Tensor> owned) {
  for (const at::Tensor& tensor : captured_) {
    const char* why_not = why_not_kept(tensor);
    const auto is_same = [&](const at::Tensor& other) { return other.is_same(tensor); };
    if (why_not != nullptr && std::none_of(owned.begin(), owned.end(), is_same)) {
      refuse(why_not);
    }
  }
}

void Tracer::refuse(std::string reason) {
  if (!refusal_) {
    refusal_ = Refusal::because(std::move(reason));
  }
}

void Tracer::add_output(const at::Tensor& tensor) {
  if (!refusal_) {
    graph_->add_output(operand(tensor));
  }
}

std::optional<Refusal> Tracer::refusal() const {
  if (refusal_) {
    return refusal_;
  }
  if (const char* reason = refused_outside_) {
    return Refusal::because(reason);
  }
  if (seed_.was_seeded()) {
    return Refusal::because("it seeds the generator");
  }
  const std::string sizes = shapes_ ? shapes_->sizes().refusal() : std::string();
  return sizes.empty() ? std::nullopt : std::optional(Refusal::because(sizes));
}

std::unique_ptr<Graph> Tracer::finish(bool has_facts) {
  SCONCE_ASSERT(!refusal(), "a refused trace has no graph");
  if (has_facts) {
    for (size_t i = 0; i + symbols() < graph_->inputs().size(); ++i) {
      Value* input = graph_->inputs()[i + symbols()];
      input->set_facts(shapes_ ? shapes_->facts_for_compile(*input, inputs_[i]) : facts_without_autograd(inputs_[i]));
    }
    // A tensor whose sizes change in place has several facts, one after the other.
    if (!may_change_sizes(*graph_)) {
      for (auto& [value, facts] : facts_) {
        value->set_facts(std::move(facts));
      }
    }
  }
  return std::move(graph_);
}

void Tracer::run(const c10::OperatorHandle& op, torch::jit::Stack& stack) {
  const c10::FunctionSchema& schema = op.schema();
  const auto first = stack.end() - static_cast<std::ptrdiff_t>(schema.arguments().size());
  const std::vector<c10::IValue> given(std::make_move_iterator(first), std::make_move_iterator(stack.end()));
  stack.erase(first, stack.end());
  if (forbids_writes_of_others_) {
    check_writes(schema, given);
  }
  std::vector<c10::IValue> reals;
  for (const c10::IValue& argument : given) {
    reals.push_back(without_trace(argument));
  }
  torch::jit::Stack results = reals;
  note_contents(given);
  const std::vector<std::vector<int64_t>> forms = shapes_ ? forms_of(reals) : std::vector<std::vector<int64_t>>();
  run_unrecorded(op, results);
  if (shapes_ && forms_of(reals) != forms) {
    refuse(toString(op.operator_name()) + ": it changes the sizes of a tensor in place");  // which code may have read before
  }
  switches_grad_mode_ = switches_grad_mode_ || c10::GradMode::is_enabled() != grad_mode_ ||
                        c10::InferenceMode::is_enabled() != inference_mode_;
  draws_ = draws_ || op.hasTag(at::Tag::nondeterministic_seeded);
  runs_backward_ = runs_backward_ || torch::autograd::get_current_graph_task_id() != -1;
  note_operands(op, given);
  const Node* node = write_node(op, given);
  if (node != nullptr && allows_reads_ && reads_number(op)) {
    reads_.push_back({node->output(), results.front()});
  } else if (node != nullptr && shapes_) {
    shapes_->derive(*node, reals, results);
  }
  const auto memory =
      node != nullptr && node->op().makes_no_contents ? TraceTensor::Memory::kShared : TraceTensor::Memory::kHidden;
  for (size_t i = 0; i < results.size(); ++i) {
    const c10::IValue* argument = argument_returned(schema, i, results[i], given, reals);
    Value* value = node != nullptr ? node->output(i) : nullptr;
    if (argument != nullptr && node != nullptr && schema.is_mutable() && !node->op().schema->is_mutable()) {
      TraceTensor::of(argument->toTensor())->set_value(value);
      note_facts(value, results[i].toTensor());
    }
    stack.push_back(argument != nullptr ? *argument : wrap_result(std::move(results[i]), value, memory));
  }
}

void Tracer::check_writes(const c10::FunctionSchema& schema, const std::vector<c10::IValue>& given) const {
  for (size_t i = 0; i < given.size(); ++i) {
    const c10::AliasInfo* mark = schema.arguments()[i].alias_info();
    if (mark == nullptr || !mark->isWrite()) {
      continue;
    }
    given[i].visit([this](const c10::IValue& part) {
      if (part.isTensor() && part.toTensor().defined()) {
        const at::Tensor real = real_of(part.toTensor());
        const auto shares = [&](const at::Tensor& captured) { return captured.is_alias_of(real); };
        TORCH_CHECK(TraceTensor::of(part.toTensor()) != nullptr && std::ranges::none_of(captured_, shares),
                    "it writes a tensor that is no argument");
      }
      return false;
    });
  }
}

void Tracer::note_facts(Value* value, const at::Tensor& real) {
  facts_.emplace_back(value, shapes_ ? shapes_->facts_for_compile(*value, real) : facts_without_autograd(real));
}

// Refuses what a run of the graph would not repeat: changes of tensors that no operator has made.
void Tracer::note_operands(const c10::OperatorHandle& op, const std::vector<c10::IValue>& given) {
  // Memory that LibTorch has allocated below its dispatcher gets contents through a pointer after this operator.
  const at::Context& context = at::globalContext();
  if (context.deterministicAlgorithms() && context.deterministicFillUninitializedMemory() && fills_in_place(op) &&
      TraceTensor::of(given.front().toTensor()) == nullptr) {
    refuse("deterministic algorithms fill memory that is not of the trace");
  }
  const bool is_recorded = !unmarked_.empty() && is_recorded_by_autograd(given);
  for (size_t i = 0; i < given.size(); ++i) {
    const TraceTensor* traced = given[i].isTensor() ? TraceTensor::of(given[i].toTensor()) : nullptr;
    if (traced == nullptr || traced->tracer() != number_) {
      continue;
    }
    const at::Tensor& tensor = given[i].toTensor();
    // Backward of backward reads what autograd has saved, with the mark that it has then.
    if (is_recorded && reads_without_history(tensor)) {
      refuse("it has an argument require a gradient after it has computed with it");
    }
    const c10::AliasInfo* mark = op.schema().arguments()[i].alias_info();
    if (traced->is_copy() && mark != nullptr && mark->isWrite()) {
      refuse("it writes a tensor that `.data()` returned");
    }
    // A view that is made without gradients is a leaf, and requires a gradient as its base does.
    if (!allows_marks_ && grad_mode_ && tensor.requires_grad() && tensor.is_leaf() && !tensor.is_view() &&
        !traced->is_copy() && !is_argument(tensor)) {
      refuse("it has an intermediate require a gradient");
    }
  }
}

// Returns whether the call changes no more than sizes or strides of a tensor that the trace has made. The tensor then stands
// for a view of what it has been: values of a graph whose sizes change have no facts.
bool Tracer::is_viewed_in_place(const Op& op, const std::vector<c10::IValue>& arguments) const {
  const TraceTensor* traced =
      !arguments.empty() && arguments.front().isTensor() ? TraceTensor::of(arguments.front().toTensor()) : nullptr;
  return view_in_place_of(op) != nullptr && traced != nullptr && traced->tracer() == number_ && !traced->is_copy() &&
         !is_argument(arguments.front().toTensor()) && !shapes_;
}

// Returns null if the trace is refused.
Node* Tracer::write_node(const c10::OperatorHandle& op, const std::vector<c10::IValue>& arguments) {
  if (!refusal_ && !(allows_reads_ && reads_number(op))) {
    if (std::string reason = why_not_traceable(op, arguments); !reason.empty()) {
      refuse(toString(op.operator_name()) + ": " + reason);
    }
  }
  if (refusal_) {
    return nullptr;
  }
  TracedCall call = traced_call(op, arguments);
  if (is_viewed_in_place(*call.op, arguments)) {
    call.op = view_in_place_of(*call.op);
  }
  std::vector<Value*> operands;
  for (size_t i = 0; i < call.arguments.size(); ++i) {
    operands.push_back(operand(call.arguments[i], overwrites_argument(*call.op, i)));
  }
  Node* node = graph_->create(call.op->kind, operands, 0);
  node->set_op(*call.op);
  for (const c10::Argument& result : call.op->schema->returns()) {
    node->add_output(result.type());
  }
  if (call.op->makes_no_contents) {
    without_contents_.insert(node->output());
  }
  return node->append_to(graph_->body());
}

c10::IValue Tracer::wrap_result(c10::IValue real, Value* value, TraceTensor::Memory memory) {
  if (real.isTensor()) {
    if (value != nullptr) {
      note_facts(value, real.toTensor());
    }
    return real.toTensor().defined() ? wrap(std::move(real).toTensor(), value, memory) : at::Tensor();
  }
  if (!real.isTensorList()) {
    return real;
  }
  Node* unpack = nullptr;
  if (value != nullptr) {
    unpack = graph_->create(prim::ListUnpack, {value}, 0);
    unpack->append_to(graph_->body());
  }
  c10::List<at::Tensor> traced;
  for (const at::Tensor& element : real.toTensorVector()) {
    Value* part = unpack != nullptr ? unpack->add_output(c10::TensorType::get()) : nullptr;
    if (part != nullptr && shapes_) {
      shapes_->set_part(*part, *value, traced.size());
    }
    traced.push_back(wrap_result(element, part, memory).toTensor());
  }
  return traced;
}

}  // namespace sconce
