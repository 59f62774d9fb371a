#include "trace/recorder.h"
#include "trace/trace_key.h"
#include "training/backward/node_hooks.h"

#include <sconce/graph_executor.h>
#include <sconce/trace.h>

#include <ATen/CPUGeneratorImpl.h>

#include <algorithm>
#include <atomic>
#include <map>
#include <mutex>
#include <string_view>

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
    std::shared_ptr<Trace> trace = find(key);
    if (trace == nullptr) {
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
    std::atomic<uint64_t> calls{0};
  };

  std::shared_ptr<Trace> find(const TraceKey& key) {
    const std::lock_guard<std::mutex> lock(mutex_);
    const auto found = traces_.find(key);
    return found == traces_.end() ? nullptr : found->second;
  }

  static uint64_t generator_seed() { return at::detail::getDefaultCPUGenerator().current_seed(); }

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
    const uint64_t seed = generator_seed();
    Tensors results;
    try {
      const RecordingScope scope(recorder);
      results = function_(std::move(traced));
    } catch (c10::Error& error) {
      if (std::string_view(error.what_without_backtrace()).find("Tensor that doesn't have storage") != std::string_view::npos) {
        keep(std::move(key), arguments, "the function reads the memory of a tensor");
        error.add_context("sconce::trace: the function reads the memory of a tensor while it is recorded; later calls of this "
                          "kind run it as it is");
      }
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
    if (generator_seed() != seed) {
      recorder.refuse("the function seeds the generator");
    }
    if (recorder.refusal()) {
      trace->refusal = recorder.refusal()->reason;
    } else {
      for (const at::Tensor& result : results) {
        recorder.add_output(result);
      }
      trace->captured = recorder.captured();
      trace->executor = std::make_unique<GraphExecutor>(recorder.finish(), "traced function", options_);
    }
    {
      const std::lock_guard<std::mutex> lock(mutex_);
      traces_.emplace(std::move(key), std::move(trace));
    }
    std::transform(results.begin(), results.end(), results.begin(),
                   [&](const at::Tensor& result) { return recorder.handed_out(result); });
    return results;
  }

  const Function function_;
  const Options options_;
  std::mutex mutex_;
  std::map<TraceKey, std::shared_ptr<Trace>> traces_;
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
