// Tracer: writes down the ATen operators that a thread calls, as a graph.
#pragma once

#include "base/call_watch.h"
#include "base/expected.h"
#include "ir/graph.h"
#include "trace/seed_watch.h"
#include "trace/sizes/symbolic_facts.h"
#include "trace/trace_tensor.h"

#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/core/stack.h>
#include <c10/core/impl/LocalDispatchKeySet.h>
#include <torch/csrc/autograd/edge.h>
#include <torch/csrc/autograd/function.h>

#include <atomic>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <unordered_map>
#include <unordered_set>
#include <vector>

namespace sconce {

// Within a TracingScope, each operator that reaches DispatchKey::Fake runs on the real tensors, and then becomes a node.
// That is below autograd and autocast: composed operators arrive as the operators that they are composed of, and backward
// formulas of LibTorch as the operators that they call. Factories and random operators are recorded, too.
//
// A trace is a run: its results are those of eager execution, and what it writes is written once. What cannot be recorded
// (`.item()`, results whose sizes depend on data) still runs. The tracer then keeps a refusal, and records no more.
//
// Used by one thread.
class Tracer {
 public:
  // `sizes`: the first inputs of the graph are then its symbols, as integers; null if every run has the sizes of this one.
  explicit Tracer(std::shared_ptr<SymbolicSizes> sizes = nullptr);
  Tracer(const Tracer&) = delete;
  Tracer& operator=(const Tracer&) = delete;

  // Adds an input of the graph. Returns a tensor that stands for it, and shares memory, version and gradient edge with
  // `real`: what the trace computes with it, autograd records for `real`.
  // `symbolic`: its sizes and strides in a tracer with symbols.
  at::Tensor add_argument(const at::Tensor& real, const std::optional<TensorFacts>& symbolic = std::nullopt);
  // The same for a tensor that is a leaf of the trace, and shares nothing that autograd knows.
  at::Tensor add_leaf(const at::Tensor& real, const std::optional<TensorFacts>& symbolic = std::nullopt);
  // The same for what a node has saved: formulas read whether it requires a gradient.
  at::Tensor add_saved(const at::Tensor& real, const std::optional<TensorFacts>& symbolic = std::nullopt);
  // Adds an input for the gradient of a tensor of the trace, after the captured ones. `like` has its sizes and dtype; later
  // runs have these, and strides of a tensor without gaps in the order of `like`.
  at::Tensor add_gradient(const at::Tensor& like);
  // Returns what is known of a tensor of a tracer with symbols; null if it is not of this trace.
  const TensorFacts* symbolic_facts(const at::Tensor& tensor) const;
  // How many inputs of the graph come before the tensors.
  size_t symbols() const { return shapes_ ? shapes_->sizes().values().size() : 0; }
  // Returns whether the tensor stands for an input. Every tensor may where inputs are those that nodes have saved.
  bool is_argument(const at::Tensor& tensor) const;
  // Returns the nodes that arguments have come from, and those that accumulate their gradients.
  std::vector<torch::autograd::Node*> argument_nodes() const;
  // Gives arguments the gradient edges that writes in the trace have given the tensors that stand for them. Throws
  // c10::Error if such an argument is a view.
  void hand_back_gradient_edges();
  // Returns results of the trace as tensors of the caller's, with the history that autograd recorded for them: arguments
  // themselves, where they are some, and views of what they are views of in the trace.
  std::vector<at::Tensor> as_callers_tensors(const std::vector<at::Tensor>& results) const;
  // Returns a tensor that stands for a value of the graph and computes with `real`, which requires no gradient.
  at::Tensor wrap(at::Tensor real, Value* value, TraceTensor::Memory memory = TraceTensor::Memory::kHidden) const;

  // Returns the value that a tensor has in the graph. A tensor that is not of this trace becomes an input (`captured`).
  Value* value_of(const at::Tensor& tensor);
  // Records what C++ code has filled these tensors with, as the first operator that reads one does. May capture contents.
  void keep_contents(const std::vector<at::Tensor>& results);
  // Returns the tensors that the trace met and was not given. The last inputs of the graph stand for them, in this order.
  const std::vector<at::Tensor>& captured() const { return captured_; }

  // Refuses the trace if later runs cannot read what it has captured. `owned`: tensors of the module, which it keeps.
  void refuse_captured(std::span<const at::Tensor> owned = {});

  // Runs an operator and records it. Takes the arguments from the stack, and leaves the results.
  void run(const c10::OperatorHandle& op, torch::jit::Stack& stack);
  // The same for an operator that the thread calls above autograd, if it may do more than the operators that it calls:
  // it is recorded whole. Returns false for others, and refuses the trace for those whose gradients autograd records.
  bool run_whole(const c10::OperatorHandle& op, torch::jit::Stack& stack);
  // Returns whether autograd records what the operator's kernel for the device calls, and refuses the trace then: the
  // library has no kernel for autograd.
  bool is_differentiated_within(const c10::OperatorHandle& op, const torch::jit::Stack& stack);

  // From here on, a write to a tensor that the trace was not given raises c10::Error before anything is written.
  void forbid_writes_of_others() { forbids_writes_of_others_ = true; }
  // From here on, numbers that are read from tensors refuse nothing: a later run may check that they are these.
  void allow_reads(bool allows = true) { allows_reads_ = allows; }
  struct Read {
    Value* value;  // of the graph
    c10::IValue number;
  };
  const std::vector<Read>& reads() const { return reads_; }

  // From here on, tensors that the trace computes may come to require gradients. Requires that the trace's results do not,
  // and that a graph of it runs below autograd.
  void allow_marks() { allows_marks_ = true; }
  // Returns whether operators ran in a backward.
  bool runs_backward() const { return runs_backward_; }
  // Returns whether operators drew random numbers.
  bool draws() const { return draws_; }

  // Whether operators that run without gradients, in a trace that records them, detach their operands in the graph. A run of
  // the graph with autograd then records what this one has.
  void detach_without_gradients(bool on) { detaches_ = on && grad_mode_; }
  // The same for operators that read these arguments, of this trace, as long as they require no gradient.
  void detach_before_marks(std::vector<at::Tensor> arguments) { unmarked_ = std::move(arguments); }

  // Notes that `copy` is what `.data()` returned of another tensor: no gradient flows through it.
  void note_data(TraceTensor& copy);
  // Notes that code is about to detach a tensor in place. Arguments are looked at when the trace ends.
  void note_detached(const at::Tensor& tensor);
  // Notes that the trace cannot be replayed. The first reason is kept.
  void refuse(std::string reason);
  std::optional<Refusal> refusal() const;

  // Returns whether an operator ran in another grad mode, or inference mode, than the tracer was made in.
  bool switches_grad_mode() const { return switches_grad_mode_; }

  Graph& graph() { return *graph_; }
  void add_output(const at::Tensor& tensor);
  // Gives the graph away. Requires that there is no refusal. `has_facts`: later runs have inputs of the sizes, strides and
  // dtypes of this one, and run without autograd. The values of the graph then have this run's facts.
  std::unique_ptr<Graph> finish(bool has_facts = false);

 private:
  friend class TracingScope;
  Value* add_input(const at::Tensor& real, const std::optional<TensorFacts>& symbolic);
  void note_facts(Value* value, const at::Tensor& real);
  void check_writes(const c10::FunctionSchema& schema, const std::vector<c10::IValue>& given) const;
  void note_operands(const c10::OperatorHandle& op, const std::vector<c10::IValue>& given);
  Node* write_node(const c10::OperatorHandle& op, const std::vector<c10::IValue>& arguments);
  bool is_viewed_in_place(const Op& op, const std::vector<c10::IValue>& arguments) const;
  bool reads_without_history(const at::Tensor& tensor) const;
  Value* operand(const c10::IValue& value, bool is_overwritten = false);
  Value* detached(Value& value, const at::Tensor& real);
  Value* size_operand(Dim dim, int64_t value);
  Value* unknown_number(const c10::IValue& value);
  void note_contents(const std::vector<c10::IValue>& given);
  void keep_contents_of(const at::Tensor& tensor);
  c10::IValue wrap_result(c10::IValue real, Value* value, TraceTensor::Memory memory);

  const uint64_t number_;  // no two tracers of a process have the same
  std::unique_ptr<Graph> graph_ = std::make_unique<Graph>();
  std::unordered_set<const Value*> without_contents_;      // fresh memory that no operator has used yet
  std::unordered_map<const Value*, at::Tensor> contents_;  // of such memory, before the call that is recorded
  std::vector<at::Tensor> inputs_;                         // the real tensors of the graph's inputs, after the symbols
  struct Argument {
    at::Tensor real;
    at::Tensor traced;
    torch::autograd::Edge edge;  // invalid if it required no gradient
  };
  class HandedOut;
  void hand_back_gradient(const Argument& argument);
  std::vector<Argument> arguments_;
  bool is_saved_ = false;  // inputs are tensors that nodes have saved, leaves among them
  std::vector<at::Tensor> captured_;
  std::unordered_map<const c10::TensorImpl*, Value*> captured_values_;
  std::vector<std::shared_ptr<torch::autograd::Node>> accumulators_;  // of arguments, which hold them weakly
  std::vector<std::pair<Value*, TensorFacts>> facts_;                 // of results
  std::optional<SymbolicFacts> shapes_;
  bool forbids_writes_of_others_ = false;
  bool allows_reads_ = false;
  bool allows_marks_ = false;
  bool runs_backward_ = false;
  bool draws_ = false;
  bool detaches_ = false;
  std::vector<at::Tensor> unmarked_;
  std::vector<Read> reads_;
  std::optional<Refusal> refusal_;
  std::atomic<const char*> refused_outside_{nullptr};  // why: a scope's `refuse`, on any thread
  const SeedWatch seed_;
  const bool grad_mode_;
  const bool inference_mode_;
  bool switches_grad_mode_ = false;
};

// Returns the tensor that a tensor of a trace computes with. Any other tensor is its own.
at::Tensor real_of(const at::Tensor& tensor);
// Gives an argument the sizes, strides and memory that a trace has given in place to the tensor that stands for it.
void hand_back_form(const at::Tensor& argument, const at::Tensor& traced);
// Replaces traced tensors and sizes, also in lists, by their concrete values.
c10::IValue without_trace(const c10::IValue& value);

// Makes a tracer the one of this thread. Scopes nest: operators reach the inner one's tracer.
class TracingScope {
 public:
  explicit TracingScope(Tracer& tracer);
  ~TracingScope();
  TracingScope(const TracingScope&) = delete;
  TracingScope& operator=(const TracingScope&) = delete;

  // The tracer of this thread's innermost scope; null outside of all.
  static Tracer* current();
  // Refuses the trace of a tracer, or without a number the traces of all threads. `reason` must outlive them.
  static void refuse(std::optional<uint64_t> number, const char* reason);

 private:
  Tracer& tracer_;
  Tracer* const outer_;
  const CallWatch watch_;
  c10::impl::IncludeDispatchKeyGuard include_;
};

// Hides operators of this thread from its tracer, such as those with which a compile computes constants.
class PausedTracing {
 public:
  PausedTracing() : exclude_(c10::DispatchKeySet({c10::DispatchKey::Fake, kWatchKey})) {}

 private:
  c10::impl::ExcludeDispatchKeyGuard exclude_;
};

}  // namespace sconce
