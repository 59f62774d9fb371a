#include "base/call_watch.h"
#include "base/exception_message.h"
#include "executor/recording_cache.h"
#include "trace/sizes/symbolic_facts.h"
#include "trace/trace_key.h"
#include "trace/tracer.h"
#include "trace/tracing_conditions.h"
#include "trace/undone_writes.h"
#include "training/backward/node_hooks.h"

#include <sconce/graph_executor.h>
#include <sconce/trace.h>

#include <c10/core/GradMode.h>

#include <algorithm>
#include <atomic>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace sconce {
namespace {

using Tensors = std::vector<at::Tensor>;

}  // namespace

class TracedFunction::Impl {
 public:
  Impl(Function function, const Options& options)
      : function_(std::move(function)), options_(options), table_(options.plan_cache_capacity()) {}

  Tensors run(Tensors arguments) {
    // An outer trace records the function as part of itself.
    if (TracingScope::current() != nullptr || why_not_now({}) != nullptr) {
      return function_(std::move(arguments));
    }
    const TraceKeyParts kind = kind_of(arguments);
    const RecordingKey key(bytes_of(kind.structure), kind.sizes);
    const RecordingCache::Found known = table_.find(key, holds);
    const auto found = std::static_pointer_cast<Trace>(known.recording);
    if (found != nullptr && found->executor != nullptr) {
      table_.count_run(*found);
      return run_plan(*found, known.symbols, std::move(arguments));
    }
    if (found != nullptr) {
      found->eager_calls.fetch_add(1, std::memory_order_relaxed);
      return function_(std::move(arguments));
    }
    const bool has_views = may_record_through_views(arguments);
    const RecordingCache::Decision decision = table_.decide(key, /*records_first=*/!has_views);
    if (!decision.pattern) {
      return has_views ? run_through_views(key, arguments) : function_(std::move(arguments));
    }
    return decision.pattern->has_symbols() ? record_symbolically(key, *decision.pattern, arguments)
                                           : record(key, *decision.pattern, arguments);
  }

  TraceExplanation explain() const {
    TraceExplanation explanation;
    for (const auto& plan : table_.recordings()) {
      const auto& trace = static_cast<const Trace&>(*plan);
      TraceExplanation::Trace& entry = explanation.traces.emplace_back();
      entry.arguments = trace.arguments;
      entry.calls = trace.runs + trace.eager_calls;
      entry.refusal = trace.refusal;
      if (trace.executor != nullptr) {
        entry.plan = trace.executor->explain();
      }
    }
    explanation.why_sizes_are_fixed = table_.why_sizes_are_fixed();
    return explanation;
  }

  void wait_for_compiles() const { table_.wait_for_compiles(); }

 private:
  struct Trace final : Recording {
    std::string arguments;
    std::unique_ptr<GraphExecutor> executor;  // null if the trace was refused
    Tensors captured;
    TraceKey captured_key;
    std::atomic<uint64_t> eager_calls{0};  // the recorded one among them

    bool is_ready() const override { return executor != nullptr; }
    void wait_for_compile() const override {
      if (executor != nullptr) {
        executor->wait_for_compiles();
      }
    }
  };

  static TraceKeyParts kind_of(const Tensors& arguments) {
    TraceKeyParts key = trace_key_parts(arguments);
    for (const at::Tensor& argument : arguments) {
      key.structure.push_back(argument.defined() && argument.is_leaf() && argument.grad().defined() ? 1 : 0);
    }
    return key;
  }

  static bool holds(Recording& recorded) {
    const auto& trace = static_cast<const Trace&>(recorded);
    return trace_key(trace.captured) == trace.captured_key;
  }

  // Autograd records a write of a view for its base, which the trace does not know.
  static bool may_record_through_views(const Tensors& arguments) {
    const auto is_view = [](const at::Tensor& tensor) { return tensor.defined() && tensor.is_view(); };
    return c10::GradMode::is_enabled() && std::any_of(arguments.begin(), arguments.end(), is_view);
  }

  static Tensors run_plan(Trace& trace, const std::vector<int64_t>& symbols, Tensors arguments) {
    torch::jit::Stack stack(symbols.begin(), symbols.end());
    stack.insert(stack.end(), std::make_move_iterator(arguments.begin()), std::make_move_iterator(arguments.end()));
    stack.insert(stack.end(), trace.captured.begin(), trace.captured.end());
    trace.executor->run(stack);
    Tensors results;
    for (c10::IValue& value : stack) {
      results.push_back(value.isNone() ? at::Tensor() : std::move(value).toTensor());
    }
    return results;
  }

  // Runs the function as it is. Refuses calls of the kind if it writes an argument.
  Tensors run_through_views(const RecordingKey& key, const Tensors& arguments) {
    std::vector<uint32_t> versions;
    for (const at::Tensor& argument : arguments) {
      versions.push_back(argument.defined() && !argument.is_inference() ? argument._version() : 0);
    }
    Tensors results = function_(arguments);
    for (size_t i = 0; i < arguments.size(); ++i) {
      if (arguments[i].defined() && !arguments[i].is_inference() && arguments[i]._version() != versions[i]) {
        const auto trace = trace_of(arguments, SizePattern(key.sizes));
        trace->refusal = "the function writes an argument that is a view, or its base";
        table_.insert(key, trace, holds);
        break;
      }
    }
    return results;
  }

  static std::shared_ptr<Trace> trace_of(const Tensors& arguments, const SizePattern& pattern) {
    auto trace = std::make_shared<Trace>();
    trace->arguments = describe_inputs(arguments);
    trace->pattern = pattern;
    return trace;
  }

  // Runs the function on tensors that stand for the arguments.
  Tensors record(const RecordingKey& key, const SizePattern& pattern, const Tensors& arguments) {
    Tracer tracer;
    Tensors traced;
    for (const at::Tensor& argument : arguments) {
      traced.push_back(tracer.add_argument(argument));
    }
    Tensors results;
    try {
      const TracingScope scope(tracer);
      results = function_(std::move(traced));
    } catch (...) {
      tracer.hand_back_gradient_edges();
      throw;
    }
    refuse_results(tracer, arguments, results);
    tracer.hand_back_gradient_edges();
    const auto trace = trace_of(arguments, pattern);
    trace->eager_calls = 1;
    finish(tracer, results, *trace);
    table_.insert(key, trace, holds);
    return tracer.as_callers_tensors(results);
  }

  // Autograd keeps the sizes of what it has recorded, and backward of the caller takes no symbols. So the call is rehearsed,
  // what it writes is undone, and the plan runs it. If there is none, the function does: it may raise with symbolic sizes.
  Tensors record_symbolically(const RecordingKey& key, const SizePattern& pattern, const Tensors& arguments) {
    const auto trace = trace_of(arguments, pattern);
    if (is_refused_) {  // for what may not happen twice
      trace->refusal = "a call with other sizes cannot be recorded";
    } else {
      const UndoneWrites undone(arguments);
      const CallWatch watch(CallWatch::AtEffect::kRaise);
      try {
        rehearse(arguments, *trace);
      } catch (const std::exception& error) {
        const std::string effect = watch.seen();
        trace->refusal = effect.empty() ? "it raises with symbolic sizes: " + message_of(error)
                                        : effect + ", which a recording might repeat";
      }
    }
    table_.insert(key, trace, holds);
    return trace->executor != nullptr ? run_plan(*trace, pattern.values(), arguments) : function_(arguments);
  }

  void rehearse(const Tensors& arguments, Trace& trace) {
    const auto sizes = std::make_shared<SymbolicSizes>(trace.pattern.values());
    const auto facts = facts_by_pattern(arguments, trace.pattern, 0, sizes->arithmetic());
    Tracer tracer(sizes);
    tracer.forbid_writes_of_others();
    Tensors traced;
    for (size_t i = 0; i < arguments.size(); ++i) {
      traced.push_back(tracer.add_argument(arguments[i], facts[i]));
    }
    Tensors results;
    {
      const TracingScope scope(tracer);
      results = function_(std::move(traced));
    }
    refuse_results(tracer, arguments, results);
    finish(tracer, results, trace);
    trace.guards = sizes;
    trace.why_sizes_are_fixed = sizes->why_pinned();
  }

  // Compiles what the tracer has recorded.
  void finish(Tracer& tracer, const Tensors& results, Trace& trace) {
    if (tracer.refusal()) {
      trace.refusal = tracer.refusal()->reason;
      is_refused_ = true;
      return;
    }
    for (const at::Tensor& result : results) {
      tracer.add_output(result);
    }
    trace.captured = tracer.captured();
    trace.captured_key = trace_key(trace.captured);
    trace.executor = std::make_unique<GraphExecutor>(tracer.finish(), "traced function", options_);
  }

  // Refuses the trace if autograd did what no plan repeats.
  static void refuse_results(Tracer& tracer, const Tensors& arguments, const Tensors& results) {
    const auto requires_grad = [](const at::Tensor& tensor) { return tensor.defined() && tensor.requires_grad(); };
    if (history_has_hooks(results, tracer.argument_nodes())) {
      tracer.refuse("the function registers a hook on a tensor that it computes");
    }
    if (tracer.switches_grad_mode() && (std::any_of(arguments.begin(), arguments.end(), requires_grad) ||
                                        std::any_of(tracer.captured().begin(), tracer.captured().end(), requires_grad))) {
      tracer.refuse(
          "the function switches grad mode, or calls a torch::autograd::Function, and a tensor that it reads requires a "
          "gradient");
    }
    if (std::any_of(results.begin(), results.end(), [&](const at::Tensor& result) {
          return requires_grad(result) && result.is_leaf() && !result.is_view() && TraceTensor::of(result) != nullptr &&
                 !tracer.is_argument(result);
        })) {
      tracer.refuse("the function makes a result require a gradient");
    }
    tracer.refuse_captured();
  }

  const Function function_;
  const Options options_;
  RecordingCache table_;
  std::atomic<bool> is_refused_{false};  // a recording was
};

TracedFunction::TracedFunction(Function function, const Options& options)
    : impl_(std::make_shared<Impl>(std::move(function), options)) {}

Tensors TracedFunction::operator()(Tensors arguments) const { return impl_->run(std::move(arguments)); }
TraceExplanation TracedFunction::explain() const { return impl_->explain(); }
void TracedFunction::wait_for_compiles() const { impl_->wait_for_compiles(); }

TracedFunction trace(TracedFunction::Function function, const Options& options) { return {std::move(function), options}; }

}  // namespace sconce
