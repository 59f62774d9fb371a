#include <sconce/graph_executor.h>

#include "analysis/effects.h"
#include "base/autocast.h"
#include "base/exception_message.h"
#include "base/tensors_in.h"
#include "executor/executor_impl.h"
#include "executor/explain_weights.h"
#include "executor/run_traced.h"
#include "executor/split_call.h"
#include "ir/dump.h"
#include "ir/text/print.h"
#include "ir/verify/verify.h"
#include "lower/explain_plan.h"
#include "plan/run_plan.h"
#include "trace/call_arguments.h"
#include "trace/tracer.h"

#include <ATen/Parallel.h>
#include <ATen/autocast_mode.h>
#include <c10/core/GradMode.h>
#include <torch/csrc/jit/frontend/tracer.h>

#include <algorithm>

namespace sconce {
namespace {

// The last graph that this thread ran. It is held weakly, because plans come and go, and written only when it
// changes, because all threads that run one plan would contend for its reference count.
thread_local std::weak_ptr<const Graph> last_executed;

// LibTorch applies the number of threads that was set to a new thread only when one of its loops is large enough.
// Until then MKL uses all cores, even for the smallest product.
void prepare_thread() { at::get_num_threads(); }

// Compares owners: the address of a plan that is gone may be the address of another.
void remember_last_executed(const Plan& plan) {
  const auto is_last = [](const auto& graph) {
    return !last_executed.owner_before(graph) && !graph.owner_before(last_executed);
  };
  if (is_last(plan.graph())) {
    return;
  }
  if (is_last(std::weak_ptr<const Graph>())) {  // the thread ran none
    prepare_thread();
  }
  last_executed = plan.graph();
}

// Plans serve the caller's autocast on the CPU to the dtypes that it has kernels for. Returns an empty string for that, and
// where autocast is off.
const char* why_autocast_is_not_compiled() {
  const c10::DispatchKeySet on = autocast_keys();
  if (!(on - c10::DispatchKeySet(c10::DispatchKey::AutocastCPU)).empty()) {
    return "autocast is on for a device other than the CPU";
  }
  const c10::ScalarType dtype = at::autocast::get_autocast_dtype(at::kCPU);
  return on.empty() || dtype == at::kBFloat16 || dtype == at::kHalf
             ? ""
             : "autocast casts to a dtype other than bfloat16 and float16";
}

// Checks a graph that the caller made: its faults are the caller's errors, not sconce's.
std::unique_ptr<Graph> well_formed(std::unique_ptr<Graph> graph, const std::string& name) {
  TORCH_CHECK(graph != nullptr, name, ": there is no graph");
  for (const NamedCheck& check : structure_checks()) {
    std::vector<Violation> violations;
    check.check(*graph, violations);
    TORCH_CHECK(violations.empty(), name, ": the graph is not well formed (", check.name, "): ", violations.front().message);
  }
  return graph;
}

// Compiles a graph whose calls are not inlined.
CompiledMethod compile_alone(std::unique_ptr<Graph> graph, const std::string& name, const Options& options,
                             CalleeTable& callees) {
  CompileSettings settings(options);
  settings.name = name;
  settings.callees = &callees;
  return compile_method(std::move(graph), settings).value_or_throw("sconce cannot run " + name);
}

}  // namespace

// ---- GraphExecutor --------------------------------------------------------------------------------------------------

GraphExecutor::GraphExecutor(std::unique_ptr<Graph> graph, std::string name, const Options& options,
                             std::optional<c10::IValue> self)
    : GraphExecutor(without_frames([&] {
                      return std::make_shared<Impl>(well_formed(std::move(graph), name), std::move(name), options,
                                                    CalleeTable::make(options), Impl::Kind::kGraph);
                    }),
                    std::move(self)) {}
GraphExecutor::GraphExecutor(std::shared_ptr<Impl> impl, std::optional<c10::IValue> self)
    : impl_(std::move(impl)), self_(std::move(self)) {}
GraphExecutor::~GraphExecutor() = default;

void GraphExecutor::run(torch::jit::Stack& stack) {
  without_frames([&] {
    const size_t expected = impl_->graph().inputs().size();
    const size_t bound = self_ ? 1 : 0;
    TORCH_CHECK(stack.size() + bound >= expected, name(), " expects ", expected - bound, " argument(s) and was given ",
                stack.size());
    if (self_) {
      stack.insert(stack.end() - static_cast<std::ptrdiff_t>(expected - 1), *self_);
    }
    impl_->run(stack);
  });
}
void GraphExecutor::run_with_self(torch::jit::Stack& stack) {
  without_frames([&] {
    TORCH_CHECK(stack.size() >= graph().inputs().size(), name(), " expects ", graph().inputs().size(),
                " value(s) on the stack, which has ", stack.size());
    impl_->run(stack);
  });
}
const std::string& GraphExecutor::name() const { return impl_->name(); }
const Graph& GraphExecutor::graph() const { return impl_->graph(); }
Explanation GraphExecutor::explain() const { return impl_->explain(self_ ? &*self_ : nullptr); }
void GraphExecutor::clear_cache() { impl_->clear_cache(); }
void GraphExecutor::wait_for_compiles() const { impl_->wait_for_compiles(); }
GraphExecutor::DebugState GraphExecutor::debug_state() const { return {print(graph()), explain().plans}; }

std::shared_ptr<const Graph> last_executed_graph() { return last_executed.lock(); }

// ---- Impl -----------------------------------------------------------------------------------------------------------

GraphExecutor::Impl::Impl(std::unique_ptr<Graph> graph, std::string name, const Options& options,
                          std::shared_ptr<CalleeTable> callees, Kind kind)
    : Impl(compile_alone(std::move(graph), name, options, *callees), name, options, callees, kind) {}
GraphExecutor::Impl::Impl(CompiledMethod compiled, std::string name, const Options& options,
                          std::shared_ptr<CalleeTable> callees, Kind kind)
    : Impl(std::move(compiled), std::move(name), options, *callees, callees, kind) {}
GraphExecutor::Impl::Impl(CompiledMethod compiled, std::string name, const Options& options, CalleeTable& owner)
    : Impl(std::move(compiled), std::move(name), options, owner, nullptr, Kind::kGraph) {}

GraphExecutor::Impl::Impl(CompiledMethod compiled, std::string name, const Options& options, CalleeTable& callees,
                          std::shared_ptr<CalleeTable> owned_callees, Kind kind)
    : callees_(callees),
      owned_callees_(std::move(owned_callees)),
      graph_(std::move(compiled.graph)),
      name_(std::move(name)),
      options_(options),
      specs_(std::make_shared<const ArgumentSpecCreator>(*graph_)),
      passes_(std::move(compiled.passes)),
      refusals_(std::move(compiled.refusals)),
      generic_(new CountedPlan{Tier::kGeneric, std::move(compiled.plan), compiled.seconds, {}, {}, {}}),
      marks_tensors_(marks_tensors(*graph_)),
      source_(new SpecializationSource{callees_.weak_from_this(), name_, options_, specs_, generic_->plan->graph(), {}, {}}),
      cache_(options.plan_cache_capacity()) {
  if (options_.profiled_runs() > 0) {
    profiled_ = compile_profiled(generic_->plan->graph(), &callees_).value_or_throw("sconce cannot profile " + name_);
    profiled_->plan->set_name(name_);
    profiled_->plan->set_thread_limit(thread_limit_of(options_));
  }
  if (options_.record_calls() && kind == Kind::kMethod) {
    recorded_ = std::make_unique<RecordedCallCache>(*graph_, RecordedMethod{name_}, options_);
  }
  dump(DumpPoint::kPlan, name_, [this] { return generic_->plan->text(); });
}

void GraphExecutor::Impl::run(torch::jit::Stack& stack) {
  invocations_.add();
  if (torch::jit::tracer::isTracing()) {
    run_traced(*graph_, stack, [this](torch::jit::Stack& inputs) { run_by_plans(inputs); });
    return;
  }
  run(stack, recorded_.get());
}

void GraphExecutor::Impl::run(torch::jit::Stack& stack, RecordedCallCache* recorded) {
  const size_t expected = graph_->inputs().size();
  if (profiled_ && takes_profiled_run()) {
    note_run(*profiled_->plan);
    run_plan(*profiled_->plan, stack, AutogradUse::kAll);
    return;
  }
  // Nothing is read of the thread's spec after a plan was chosen: compiling one may call a module, which overwrites it.
  static thread_local ArgumentSpec spec;
  const bool records_gradients = c10::GradMode::is_enabled();
  const Arguments arguments(stack.data() + (stack.size() - expected), expected);
  bool may_skip_autograd = false;
  bool requires_grad = false;
  if (options_.optimize()) {
    specs_->create(arguments, spec);
    may_skip_autograd = !spec.has_exotic() && !transform_is_active();
    requires_grad = records_gradients && (spec.requires_grad() || marks_tensors_);
  }
  if (requires_grad && may_skip_autograd && recorded != nullptr && recorded->is_on()) {
    if (CallInParts* parts = parts_of_call()) {
      run_in_parts(*parts, stack);
      return;
    }
    if (recorded->run(stack, expected, [this](torch::jit::Stack& call) { run_by_plans(call); })) {
      return;
    }
  }
  if (const Tracer* tracer = may_skip_autograd ? nullptr : TracingScope::current()) {
    if (tracer->symbols() > 0) {
      run_plan(symbolic_plan(), stack, AutogradUse::kAll);
      return;
    }
  }
  FrameLease frame = take_frame(options_.optimize() ? &spec : nullptr, arguments, requires_grad ? recorded : nullptr);
  const Plan& plan = frame.plan();
  requires_grad = requires_grad || (records_gradients && plan.constants_require_grad());
  note_run(plan);
  run_plan(frame, stack,
           !may_skip_autograd        ? AutogradUse::kAll
           : plan.checks_each_step() ? AutogradUse::kPerStep
           : requires_grad           ? AutogradUse::kAll
                                     : AutogradUse::kNone);
}

GraphExecutor::Impl::CallInParts* GraphExecutor::Impl::parts_of_call() {
  std::call_once(is_split_, [this] {
    if (std::optional<CallParts> parts = split_call(*generic_->plan->graph())) {
      parts_ = std::make_unique<CallInParts>();
      parts_->rest_runs_backward = false;
      for_each_node(parts->rest->body(), [&](const Node* node) {
        parts_->rest_runs_backward = parts_->rest_runs_backward || node->op().differentiates;
      });
      parts_->first = std::make_unique<Impl>(std::move(parts->first), name_, options_, owned_callees_, Kind::kGraph);
      parts_->rest = std::make_unique<Impl>(std::move(parts->rest), name_, options_, owned_callees_, Kind::kMethod);
      split_ = parts_.get();
    }
  });
  return parts_ == nullptr || parts_->is_given_up ? nullptr : parts_.get();
}

void GraphExecutor::Impl::run_in_parts(CallInParts& parts, torch::jit::Stack& stack) {
  const auto first_argument = stack.end() - static_cast<std::ptrdiff_t>(graph_->inputs().size());
  torch::jit::Stack results(first_argument, stack.end());
  parts.first->run_by_plans(results);
  const auto has_history = [](const at::Tensor& tensor) { return tensor.requires_grad() && !tensor.is_leaf(); };
  if (parts.rest_runs_backward && std::ranges::any_of(tensors_in(results), has_history)) {
    parts.is_given_up = true;
  }
  stack.insert(stack.end(), std::make_move_iterator(results.begin()), std::make_move_iterator(results.end()));
  parts.rest->run(stack);
}

const Plan& GraphExecutor::Impl::symbolic_plan() {
  std::call_once(has_symbolic_sizes_, [this] {
    symbolic_plan_ = compile_symbolic(generic_->plan->graph(), &callees_).value_or_throw("sconce cannot run " + name_);
    symbolic_plan_->set_name(name_);
    symbolic_plan_->set_thread_limit(thread_limit_of(options_));
  });
  return *symbolic_plan_;
}

// A program that another plan runs is no last graph of the thread: it belongs to the other plan's run.
void GraphExecutor::Impl::note_run(const Plan& plan) const {
  if (owned_callees_ != nullptr) {
    remember_last_executed(plan);
  }
}

// Chooses the plan that serves the spec; without a spec, the one that serves all. Only the look-up holds back the
// destruction of what leaves the cache: the frame keeps its plan.
FrameLease GraphExecutor::Impl::take_frame(const ArgumentSpec* spec, Arguments arguments, RecordedCallCache* recorded) {
  const PlanCache<SpecEntry>::Guard guard(cache_);
  const CountedPlan& chosen = spec != nullptr ? plan_for(*spec, arguments, guard, recorded) : *generic_;
  chosen.runs.add();
  return FrameLease(*chosen.plan, spec != nullptr ? spec->weight() : nullptr);
}

// Counts only up to the limit, so that the counter cannot wrap.
bool GraphExecutor::Impl::takes_profiled_run() {
  return profiled_runs_.load(std::memory_order_relaxed) < options_.profiled_runs() &&
         profiled_runs_.fetch_add(1, std::memory_order_relaxed) < options_.profiled_runs();
}

// The generic plan serves a spec until its own plan is made. The second run of a spec asks for that, or the first if the
// caller waits for it anyway.
const CountedPlan& GraphExecutor::Impl::plan_for(const ArgumentSpec& spec, Arguments arguments,
                                                 const PlanCache<SpecEntry>::Guard& guard, RecordedCallCache* recorded) {
  const SpecEntry* entry = cache_.find(guard, spec.words(), spec.hash());
  const bool is_new = entry == nullptr;
  if (is_new) {
    misses_.add();
    const auto inserted = cache_.find_or_insert(guard, spec.words(), spec.hash(),
                                                [&] { return std::make_shared<Specialization>(why_not_specialized(spec)); });
    evictions_.add(inserted.evicted);
    entry = inserted.value;
  } else {
    hits_.add();
  }
  if ((!is_new || options_.compile() == CompileMode::kBlocking) && (*entry)->claim()) [[unlikely]] {
    specialize(*entry, spec, arguments);
  }
  const CountedPlan* own = (*entry)->plan();
  if (recorded != nullptr && !recorded->is_on() && (own != nullptr || (*entry)->is_refused())) {
    recorded->note_plan(own != nullptr ? own->gradients : std::nullopt);
  }
  return own != nullptr ? *own : *generic_;
}

void GraphExecutor::Impl::specialize(const SpecEntry& entry, const ArgumentSpec& spec, Arguments arguments) {
  SpecializationRequest request;
  try {
    request = {{spec.words().begin(), spec.words().end()}, specs_->symbolic_sizes(arguments)};
  } catch (const std::bad_alloc&) {
    entry->fail("out of memory");
    return;
  }
  if (options_.compile() == CompileMode::kBlocking) {
    compile_now(*source_, request, callees_, *entry);
  } else {
    compile_later(source_, std::move(request), entry);
  }
}

// Returns an empty string for a spec that shall have a plan of its own. The words decide: specs with equal words have
// equal answers.
const char* GraphExecutor::Impl::why_not_specialized(const ArgumentSpec& spec) const {
  return options_.compile() == CompileMode::kNever ? "Options::compile is kNever"
         : spec.has_exotic()                       ? "it has an exotic tensor or a long container"
         : transform_is_active()                   ? "a transform is active"
                                                   : why_autocast_is_not_compiled();
}

PlanExplanation GraphExecutor::Impl::explain_plan(const CountedPlan& counted, std::vector<std::string> specs) const {
  PlanExplanation explanation;
  explanation.tier = counted.tier;
  explanation.specs = std::move(specs);
  explanation.runs = counted.runs.value();
  explanation.compile_seconds = counted.compile_seconds;
  explanation.gradients = counted.gradients;
  explanation.passes = counted.passes;
  sconce::explain_plan(*counted.plan, explanation);
  return explanation;
}

Explanation GraphExecutor::Impl::explain(const c10::IValue* self) const {
  Explanation explanation;
  explanation.method = name_;
  explanation.nodes = graph_->node_count();
  explanation.passes = passes_;
  explanation.refusals = refusals_;
  explanation.plans.push_back(explain_plan(*generic_, {}));
  std::vector<at::Tensor> weights = self != nullptr ? tensors_in(*self) : std::vector<at::Tensor>();
  if (auto refusal = why_not_packed(weights, options_)) {
    explanation.refusals.push_back(*std::move(refusal));
  }
  const auto add_constants = [&](const Plan& plan) {
    weights.insert(weights.end(), plan.constant_tensors().begin(), plan.constant_tensors().end());
  };
  add_constants(*generic_->plan);
  {
    const PlanCache<SpecEntry>::Guard guard(cache_);
    cache_.for_each(guard, [&](SpecWords words, const SpecEntry& entry) {
      entry->add_refusals(explanation.refusals);
      if (const CountedPlan* own = entry->plan()) {
        explanation.plans.push_back(explain_plan(*own, {describe_spec(words)}));
        add_constants(*own->plan);
      } else {
        explanation.plans.front().specs.push_back(describe_spec(words));
        explanation.plans.front().why_generic.push_back(entry->why_not());
      }
    });
  }
  explanation.weights = explain_weights(weights);
  if (owned_callees_ != nullptr) {
    explanation.callees = callees_.explain();
    for (Explanation& callee : explanation.callees) {
      for (RefusalExplanation& refusal : callee.refusals) {
        refusal.what += " in " + callee.method;
        explanation.refusals.push_back(std::move(refusal));
      }
      callee.refusals.clear();
    }
  }
  if (recorded_ != nullptr) {
    const CallInParts* parts = split_;
    explanation.recorded = parts != nullptr ? parts->rest->explain().recorded : recorded_->explain();
  }
  explanation.counters = counters();
  explanation.counters.refusals = explanation.refusals.size();
  if (profiled_) {
    explanation.profile = profiled_->profile->explain();
  }
  return explanation;
}

Counters GraphExecutor::Impl::counters() const {
  std::vector<RefusalExplanation> refusals = refusals_;
  {
    const PlanCache<SpecEntry>::Guard guard(cache_);
    cache_.for_each(guard, [&](SpecWords /*words*/, const SpecEntry& entry) { entry->add_refusals(refusals); });
  }
  return {.invocations = invocations_.value(),
          .cache_hits = hits_.value(),
          .cache_misses = misses_.value(),
          .compiles = (profiled_ ? 2 : 1) + source_->compiles.value(),
          .refusals = refusals.size(),
          .evictions = evictions_.value()};
}

void GraphExecutor::Impl::wait_for_compiles() const {
  source_->jobs.wait();
  if (recorded_ != nullptr) {
    recorded_->wait_for_compiles();
  }
  if (const CallInParts* parts = split_) {
    parts->first->wait_for_compiles();
    parts->rest->wait_for_compiles();
  }
  if (owned_callees_ != nullptr) {
    callees_.wait_for_compiles();
  }
}

void GraphExecutor::Impl::clear_cache() {
  if (entry_) {
    entry_->keep_counters();
  }
  if (owned_callees_ != nullptr) {
    callees_.clear_caches();
  }
  cache_.clear();
  if (recorded_ != nullptr) {
    recorded_->clear();
  }
  if (CallInParts* parts = split_) {
    parts->first->clear_cache();
    parts->rest->clear_cache();
  }
  for (StripedCounter* counter : {&invocations_, &hits_, &misses_, &evictions_, &generic_->runs, &source_->compiles}) {
    counter->reset();
  }
}

void GraphExecutor::Impl::forget(const DestroyedModules& modules) {
  if (recorded_ != nullptr) {
    recorded_->drop_recordings_of(modules);
  }
  if (CallInParts* parts = split_) {
    parts->rest->forget(modules);
  }
}

void GraphExecutor::Impl::drop_frames() {
  generic_->plan->drop_frames();
  {
    const PlanCache<SpecEntry>::Guard guard(cache_);
    cache_.for_each(guard, [](SpecWords /*words*/, const SpecEntry& entry) {
      if (const CountedPlan* own = entry->plan()) {
        own->plan->drop_frames();
      }
    });
  }
  if (CallInParts* parts = split_) {
    parts->first->drop_frames();
    parts->rest->drop_frames();
  }
}

}  // namespace sconce
