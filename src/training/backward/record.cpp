#include "training/backward/record.h"

#include "trace/recorder.h"
#include "training/backward/node_hooks.h"


#include <algorithm>
#include <map>
#include <mutex>
#include <string>
#include <unordered_map>

namespace sconce {
namespace {

namespace dynamo = torch::dynamo::autograd;
using torch::autograd::functional_apply_t;
using torch::autograd::variable_list;

// A node's class binds its function once in a process, whoever records first.
class BoundFunctions {
 public:
  void bind(const std::string& name, functional_apply_t function) {
    const std::lock_guard<std::mutex> lock(mutex_);
    functions_.insert_or_assign(name, std::move(function));
  }
  functional_apply_t find(const std::string& name) {
    const std::lock_guard<std::mutex> lock(mutex_);
    const auto found = functions_.find(name);
    TORCH_CHECK(found != functions_.end(), name, " was not bound; another compiler of backward has recorded in this process");
    return found->second;
  }

 private:
  std::mutex mutex_;
  std::unordered_map<std::string, functional_apply_t> functions_;
};

BoundFunctions& bound_functions() {
  static auto& functions = *new BoundFunctions();
  return functions;
}

// Called by LibTorch's nodes in place of their own formulas: calls these, so that the recorder sees operators.
class NodeInterface final : public dynamo::PyCompilerInterface {
 public:
  std::string bind_function(PyObject* /*compiler*/, const std::string& name, functional_apply_t function,
                            std::vector<at::TypePtr> /*schema*/, bool /*is_custom_function*/,
                            bool /*is_traceable*/) const override {
    bound_functions().bind(name, std::move(function));
    return name;
  }

  variable_list call_function(PyObject* /*compiler*/, const char* /*method*/, const std::string& name,
                              const variable_list& gradients, const std::vector<c10::IValue>& arguments,
                              const c10::IValue& /*metadata*/) const override {
    return bound_functions().find(name)(gradients, arguments);
  }

  // The gradient of a tensor of which a view was written: a copy of it, and the view's part of the copy, twice.
  variable_list call_copy_slices_prologue(PyObject* /*compiler*/, const variable_list& gradients,
                                          const at::TensorGeometry& base, const at::TensorGeometry& view) const override {
    const at::Tensor& gradient = gradients.front();
    const at::Tensor result = gradient.new_empty_strided_symint(base.sym_sizes(), base.sym_strides());
    result.copy_(gradient);
    const at::Tensor slice = result.as_strided_symint(view.sym_sizes(), view.sym_strides(),
                                                      view.sym_storage_offset() - base.sym_storage_offset());
    return {result, slice, slice.clone()};
  }

  // What flowed through the write replaces the view's part.
  variable_list call_copy_slices_epilogue(PyObject* /*compiler*/, const std::vector<bool>& needs, const at::Tensor& result,
                                          const variable_list& gradients, const at::Tensor& slice) const override {
    variable_list all(needs.size());
    for (size_t i = 0; i < needs.size(); ++i) {
      if (!needs[i] || !gradients[i].defined()) {
        continue;
      }
      if (i == 0) {
        slice.copy_(gradients[i]);
        all[i] = result;
      } else {
        all[i] = gradients[i];
      }
    }
    return all;
  }

  at::Tensor call_unpack(PyObject* /*compiler*/, std::optional<size_t> /*hook*/, size_t /*input*/) const override {
    TORCH_CHECK(false, "saved tensors with hooks are not recorded");
  }
  void call_accumulate_grad(PyObject* /*compiler*/, const at::Tensor& /*leaf*/, const at::Tensor& /*gradient*/,
                            bool /*has_hooks*/) const override {
    TORCH_INTERNAL_ASSERT(false, "leaves are not recorded");
  }
};

// Runs the calls of a walk as the engine would, and records what it can. Host code ends a stage: what is needed after it
// leaves one graph, and enters the next.
class BackwardRecorder {
 public:
  BackwardRecorder(BackwardWalk& walk, size_t results, bool keeps_graph, const CompileStage& compile)
      : walk_(walk), keeps_graph_(keeps_graph), compile_(compile) {
    recorded_.results.resize(results);
    sizes_.resize(walk.compiler().all_size_inputs.size());
    begin_stage();
  }

  RecordedBackward run() {
    dynamo::TraceState state(std::move(sizes_), 0);
    for (size_t i = 0; i < walk_.calls().size(); ++i) {
      run(i, state);
    }
    end_stage(std::nullopt);
    recorded_.program.slots = reals_.size();
    variable_list slots = std::move(reals_);
    finish_run(recorded_.program, walk_, slots, recorded_.results, keeps_graph_);
    return std::move(recorded_);
  }

 private:
  // ---- calls --------------------------------------------------------------------------------------------------------

  void run(size_t index, dynamo::TraceState& state) {
    const BackwardCall& call = walk_.calls()[index];
    variable_list gradients = std::move(incoming_[index_of(*call.node)]);
    gradients.resize(call.node->num_inputs());
    if (!call.is_needed && has_tensor_hooks(*call.node)) {
      gradients = run_host({.code = HostCode::kTensorHooks, .call = index}, gradients, {});
    }
    for (const BackwardCall::Capture& capture : call.captures) {
      hand_out(gradients[static_cast<size_t>(capture.input)], {false, static_cast<size_t>(capture.output), 0});
    }
    if (!call.is_needed) {
      return;
    }
    if (call.is_leaf && walk_.runs_other_code()) {
      run_host({.code = HostCode::kLeaf, .call = index}, gradients, {});
    } else if (call.is_leaf) {
      hand_out(gradients.front(), {true, index, 0});
    } else {
      run_node(index, std::move(gradients), state);
    }
  }

  void run_node(size_t index, variable_list gradients, dynamo::TraceState& state) {
    const BackwardCall& call = walk_.calls()[index];
    if (has_hooks_before(*call.node)) {
      gradients = run_host({.code = HostCode::kHooksBefore, .call = index}, gradients, {});
    }
    variable_list given = gradients;
    variable_list results;
    if (call.is_opaque) {
      results = run_host({.code = HostCode::kNode, .call = index}, gradients, {}, &given);
    } else {
      results = record_node(call, gradients, state);
    }
    if (has_hooks_after(*call.node)) {
      results = run_host({.code = HostCode::kHooksAfter, .call = index}, results, given);
    }
    for (size_t i = 0; i < results.size(); ++i) {
      const torch::autograd::Edge& edge = call.node->next_edge(i);
      if (edge.is_valid() && results[i].defined()) {
        pass_on(edge, results[i]);
      }
    }
  }

  variable_list record_node(const BackwardCall& call, const variable_list& gradients, dynamo::TraceState& state) {
    // LibTorch has one place for the interface in a process.
    static std::mutex one_at_a_time;
    const std::lock_guard<std::mutex> lock(one_at_a_time);
    const dynamo::PyCompilerGuard guard(std::make_unique<NodeInterface>());
    const RecordingScope scope(*recorder_);
    dynamo::SwapSavedVariables saved(walk_.compiler(), state, nullptr, *call.entry);
    variable_list results = call.node->apply_with_saved(gradients, saved);
    fit_results(*call.node, results);
    return results;
  }

  void pass_on(const torch::autograd::Edge& edge, const at::Tensor& gradient) {
    const RecordingScope scope(*recorder_);
    variable_list& inputs = incoming_[index_of(*edge.function)];
    inputs.resize(edge.function->num_inputs());
    at::Tensor& sum = inputs[edge.input_nr];
    sum = sum_of_gradients(sum, gradient);
  }

  void hand_out(const at::Tensor& gradient, GradientTarget target) {
    if (gradient.defined()) {
      target.slot = slot_of(gradient);
      recorded_.program.targets.push_back(target);
    }
  }

  size_t index_of(const torch::autograd::Node& node) {
    if (indices_.empty()) {
      for (size_t i = 0; i < walk_.calls().size(); ++i) {
        indices_.emplace(walk_.calls()[i].node.get(), i);
      }
    }
    return indices_.at(&node);
  }

  // ---- stages -------------------------------------------------------------------------------------------------------

  void begin_stage() {
    recorder_ = std::make_unique<Recorder>();
    stage_ = {};
    slots_.clear();
    for (const at::Tensor& tensor : walk_.tensors()) {
      walk_.compiler().tensor_args.lookup(tensor).proxy_tensor = recorder_->add_saved(tensor);
    }
  }

  // Runs host code on real tensors. Returns its results as tensors of the next stage, and replaces `given` of the node by such.
  variable_list run_host(HostCall host, const variable_list& given, const variable_list& before,
                         variable_list* kept = nullptr) {
    host.given = slots_of(given);
    host.before = slots_of(before);
    for (auto& [call, gradients] : incoming_) {
      host.waiting.push_back({call, slots_of(gradients)});
    }
    variable_list real = run_host_code(host.code, *walk_.calls()[host.call].node, reals_of(host.given), reals_of(host.before),
                                       keeps_graph_);
    host.outcome = trace_key(real);
    for (at::Tensor& tensor : real) {
      host.results.push_back(tensor.defined() ? Slot(reals_.size()) : Slot());
      if (tensor.defined()) {
        reals_.push_back(std::move(tensor));
      }
    }
    const Slots results = host.results;
    const Slots kept_slots = host.given;
    const std::vector<WaitingGradients> waits = host.waiting;
    end_stage(std::move(host));
    begin_stage();
    for (const WaitingGradients& gradients : waits) {
      incoming_[gradients.call] = enter(gradients.slots);
    }
    if (kept != nullptr) {
      *kept = enter(kept_slots);
    }
    return enter(results);
  }

  void end_stage(std::optional<HostCall> host) {
    stage_.host = std::move(host);
    if (!recorded_.refusal && recorder_->refusal()) {
      recorded_.refusal = recorder_->refusal();
    } else if (!recorded_.refusal && !recorder_->captured().empty()) {
      recorded_.refusal = Refusal::because("a node computes with a tensor that it has not saved");
    }
    if (!recorded_.refusal && !stage_.given.empty()) {
      std::unique_ptr<Graph> graph = recorder_->finish(/*has_facts=*/true);
      drop_unused_inputs(*graph);
      stage_.graph = compile_(std::move(graph));
    }
    recorded_.program.stages.push_back(std::move(stage_));
  }

  // The inputs of a graph are all tensors of the walk, then slots.
  void drop_unused_inputs(Graph& graph) {
    std::vector<size_t> taken;
    std::vector<size_t> saved;
    for (size_t i = 0; i < graph.inputs().size(); ++i) {
      if (graph.inputs()[i]->has_uses()) {
        const size_t tensors = walk_.tensors().size();
        i < tensors ? saved.push_back(i) : taken.push_back(stage_.taken[i - tensors]);
      }
    }
    for (size_t i = graph.inputs().size(); i-- > 0;) {
      if (!graph.inputs()[i]->has_uses()) {
        graph.body().remove_param(i);
      }
    }
    stage_.saved = std::move(saved);
    stage_.taken = std::move(taken);
  }

  // ---- slots --------------------------------------------------------------------------------------------------------

  // Returns the slot that a tensor of this stage leaves in.
  size_t slot_of(const at::Tensor& tensor) {
    const auto [found, is_new] = slots_.try_emplace(keys_of(tensor), reals_.size());
    if (is_new) {
      reals_.push_back(real_tensor_of(tensor));
      recorder_->add_output(tensor);
      stage_.given.push_back(found->second);
    }
    return found->second;
  }

  Slots slots_of(const variable_list& tensors) {
    Slots slots;
    for (const at::Tensor& tensor : tensors) {
      slots.push_back(tensor.defined() ? Slot(slot_of(tensor)) : Slot());
    }
    return slots;
  }

  variable_list reals_of(const Slots& slots) const {
    variable_list reals;
    for (const Slot& slot : slots) {
      reals.push_back(slot ? reals_[*slot] : at::Tensor());
    }
    return reals;
  }

  // Returns tensors that stand for slots in this stage.
  variable_list enter(const Slots& slots) {
    variable_list tensors;
    for (const Slot& slot : slots) {
      tensors.emplace_back();
      if (slot) {
        const auto found = std::find(stage_.taken.begin(), stage_.taken.end(), *slot);
        if (found == stage_.taken.end()) {
          stage_.taken.push_back(*slot);
          entered_.push_back(recorder_->add_saved(reals_[*slot]));
          slots_.emplace(keys_of(entered_.back()), *slot);
          tensors.back() = entered_.back();
        } else {
          tensors.back() = entered_[entered_.size() - static_cast<size_t>(stage_.taken.end() - found)];
        }
      }
    }
    return tensors;
  }

  // A tensor is its value. Without values, after a refusal, it is the tensor itself.
  static const void* keys_of(const at::Tensor& tensor) {
    const TraceTensor* traced = TraceTensor::of(tensor);
    return traced != nullptr && traced->value() != nullptr ? static_cast<const void*>(traced->value())
                                                           : static_cast<const void*>(tensor.unsafeGetTensorImpl());
  }

  // A tensor of the walk is handed out as it is, so that a leaf which takes it copies it.
  at::Tensor real_tensor_of(const at::Tensor& tensor) const {
    const TraceTensor* traced = TraceTensor::of(tensor);
    const Value* value = traced != nullptr ? traced->value() : nullptr;
    const bool is_saved = value != nullptr && value->node() == recorder_->graph().body().param_node() &&
                          value->offset() < walk_.tensors().size();
    return is_saved ? walk_.tensors()[value->offset()] : real_of(tensor);
  }

  BackwardWalk& walk_;
  const bool keeps_graph_;
  const CompileStage& compile_;
  RecordedBackward recorded_;
  std::vector<std::optional<c10::SymInt>> sizes_;
  std::unordered_map<const torch::autograd::Node*, size_t> indices_;  // of the walk's calls
  std::map<size_t, variable_list> incoming_;                          // by call
  variable_list reals_;                                               // by slot
  // Of the current stage:
  std::unique_ptr<Recorder> recorder_;
  BackwardStage stage_;
  std::unordered_map<const void*, size_t> slots_;
  variable_list entered_;  // the last ones stand for stage_.taken
};

}  // namespace

RecordedBackward record_backward(BackwardWalk& walk, size_t results, bool keeps_graph, const CompileStage& compile) {
  return BackwardRecorder(walk, results, keeps_graph, compile).run();
}

}  // namespace sconce
