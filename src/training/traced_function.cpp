#include "trace/recorder.h"
#include "trace/recording_conditions.h"
#include "trace/trace_key.h"
#include "training/backward/node_hooks.h"

#include <sconce/graph_executor.h>
#include <sconce/trace.h>

#include <c10/core/GradMode.h>

#include <algorithm>
#include <atomic>
#include <map>
#include <mutex>
#include <set>

namespace sconce {
namespace {

using Tensors = std::vector<at::Tensor>;

}  // namespace

class TracedFunction::Impl {
 public:
  Impl(Function function, const Options& options) : function_(std::move(function)), options_(options) {}

  Tensors run(Tensors arguments) {
    if (RecordingScope::current() != nullptr) {
      return function_(std::move(arguments));  // the outer trace records it
    }
    TraceKey key = trace_key(arguments);
    for (const at::Tensor& argument : arguments) {
      key.push_back(argument.defined() && argument.is_leaf() && argument.grad().defined() ? 1 : 0);
    }
    std::shared_ptr<Trace> trace = find(key);
    if (trace == nullptr && why_not_now({}) != nullptr) {
      return function_(std::move(arguments));
    }
    if (trace == nullptr && may_record_through_views(arguments) && !writes_no_argument(key)) {
      return run_first(std::move(key), arguments);
    }
    if (trace == nullptr || (trace->executor != nullptr && trace_key(trace->captured) != trace->captured_key)) {
      return record(std::move(key), arguments);
    }
    trace->calls.fetch_add(1, std::memory_order_relaxed);
    if (trace->executor == nullptr) {
      return function_(std::move(arguments));
    }
    torch::jit::Stack stack(std::make_move_iterator(arguments.begin()), std::make_move_iterator(arguments.end()));
    stack.insert(stack.end(), trace->captured.begin(), trace->captured.end());
    trace->executor->run(stack);
    Tensors results;
    for (c10::IValue& value : stack) {
      results.push_back(value.isNone() ? at::Tensor() : std::move(value).toTensor());
    }
    return results;
  }

  TraceExplanation explain() {
    TraceExplanation explanation;
    const std::lock_guard<std::mutex> lock(mutex_);
    for (const auto& [key, trace] : traces_) {
      TraceExplanation::Trace& entry = explanation.traces.emplace_back();
      entry.arguments = trace->arguments;
      entry.calls = trace->calls;
      entry.refusal = trace->refusal;
      if (trace->executor != nullptr) {
        entry.plan = trace->executor->explain();
      }
    }
    return explanation;
  }

  void wait_for_compiles() {
    const std::lock_guard<std::mutex> lock(mutex_);
    for (const auto& [key, trace] : traces_) {
      if (trace->executor != nullptr) {
        trace->executor->wait_for_compiles();
      }
    }
  }

 private:
  struct Trace {
    std::string arguments;
    std::string refusal;
    std::unique_ptr<GraphExecutor> executor;  // null if the trace was refused
    Tensors captured;
    TraceKey captured_key;
    std::atomic<uint64_t> calls{0};
  };

  std::shared_ptr<Trace> find(const TraceKey& key) {
    const std::lock_guard<std::mutex> lock(mutex_);
    const auto found = traces_.find(key);
    return found == traces_.end() ? nullptr : found->second;
  }

  // Autograd records a write of a view for its base, which the trace does not know.
  static bool may_record_through_views(const Tensors& arguments) {
    const auto is_view = [](const at::Tensor& tensor) { return tensor.defined() && tensor.is_view(); };
    return c10::GradMode::is_enabled() && std::any_of(arguments.begin(), arguments.end(), is_view);
  }

  bool writes_no_argument(const TraceKey& key) {
    const std::lock_guard<std::mutex> lock(mutex_);
    return write_nothing_.count(key) != 0;
  }

  // Runs the function as it is, to see whether it writes its arguments.
  Tensors run_first(TraceKey key, const Tensors& arguments) {
    std::vector<uint32_t> versions;
    for (const at::Tensor& argument : arguments) {
      versions.push_back(argument.defined() && !argument.is_inference() ? argument._version() : 0);
    }
    Tensors results = function_(arguments);
    for (size_t i = 0; i < arguments.size(); ++i) {
      if (arguments[i].defined() && !arguments[i].is_inference() && arguments[i]._version() != versions[i]) {
        keep(std::move(key), arguments, "the function writes an argument that is a view, or its base");
        return results;
      }
    }
    const std::lock_guard<std::mutex> lock(mutex_);
    write_nothing_.insert(std::move(key));
    return results;
  }

  // Has later calls of the kind run the function.
  void keep(TraceKey key, const Tensors& arguments, const std::string& refusal) {
    const auto trace = std::make_shared<Trace>();
    trace->arguments = describe_inputs(arguments);
    trace->refusal = refusal;
    const std::lock_guard<std::mutex> lock(mutex_);
    traces_.emplace(std::move(key), trace);
  }

  // Runs the function on tensors that stand for the arguments.
  Tensors record(TraceKey key, const Tensors& arguments) {
    Recorder recorder;
    Tensors traced;
    for (const at::Tensor& argument : arguments) {
      traced.push_back(recorder.add_argument(argument));
    }
    Tensors results;
    try {
      const RecordingScope scope(recorder);
      results = function_(std::move(traced));
    } catch (...) {
      recorder.hand_back_gradient_edges();
      throw;
    }
    if (history_has_hooks(results, recorder.argument_nodes())) {
      recorder.refuse("the function registers a hook on a tensor that it computes");
    }
    recorder.hand_back_gradient_edges();
    auto trace = std::make_shared<Trace>();
    trace->arguments = describe_inputs(arguments);
    trace->calls = 1;
    const auto requires_grad = [](const at::Tensor& tensor) { return tensor.defined() && tensor.requires_grad(); };
    if (recorder.switches_grad_mode() &&
        (std::any_of(arguments.begin(), arguments.end(), requires_grad) ||
         std::any_of(recorder.captured().begin(), recorder.captured().end(), requires_grad))) {
      recorder.refuse(
          "the function switches grad mode, or calls a torch::autograd::Function, and a tensor that it reads requires a "
          "gradient");
    }
    if (std::any_of(results.begin(), results.end(), [&](const at::Tensor& result) {
          return requires_grad(result) && result.is_leaf() && TraceTensor::of(result) != nullptr &&
                 !recorder.is_argument(result);
        })) {
      recorder.refuse("the function has a result require a gradient");
    }
    recorder.refuse_captured();
    if (recorder.refusal()) {
      trace->refusal = recorder.refusal()->reason;
    } else {
      for (const at::Tensor& result : results) {
        recorder.add_output(result);
      }
      trace->captured = recorder.captured();
      trace->captured_key = trace_key(trace->captured);
      trace->executor = std::make_unique<GraphExecutor>(recorder.finish(), "traced function", options_);
    }
    {
      const std::lock_guard<std::mutex> lock(mutex_);
      traces_.insert_or_assign(std::move(key), std::move(trace));
    }
    Tensors handed_out;
    for (const at::Tensor& result : results) {
      handed_out.push_back(recorder.handed_out(result, handed_out));
    }
    return handed_out;
  }

  const Function function_;
  const Options options_;
  std::mutex mutex_;
  std::map<TraceKey, std::shared_ptr<Trace>> traces_;
  std::set<TraceKey> write_nothing_;  // of calls with views, whose first run wrote no argument
};

TracedFunction::TracedFunction(Function function, const Options& options)
    : impl_(std::make_shared<Impl>(std::move(function), options)) {}

Tensors TracedFunction::operator()(Tensors arguments) const { return impl_->run(std::move(arguments)); }
TraceExplanation TracedFunction::explain() const { return impl_->explain(); }
void TracedFunction::wait_for_compiles() const { impl_->wait_for_compiles(); }

TracedFunction trace(TracedFunction::Function function, const Options& options) {
  return {std::move(function), options};
}

}  // namespace sconce
