#include "training/backward/trace_backward.h"

#include "trace/tracer.h"
#include "training/backward/node_hooks.h"
#include "training/backward/node_interface.h"
#include "training/backward/sizes.h"

#include <algorithm>
#include <map>
#include <mutex>
#include <unordered_map>

namespace sconce {
namespace {

namespace dynamo = torch::dynamo::autograd;
using torch::autograd::variable_list;

// Runs the calls of a walk as the engine would, and records what it can. Host code ends a stage: what is needed after it
// leaves one graph, and enters the next.
//
// It is LibTorch's autograd engine with tensors of a trace. `Run` in program.cpp has the same functions for real tensors.
class BackwardTracer {
 public:
  BackwardTracer(BackwardSchedule& walk, const SizePattern& pattern, size_t results, bool keeps_graph,
                 const CompileStage& compile)
      : walk_(walk), sizes_(walk, pattern), keeps_graph_(keeps_graph), compile_(compile) {
    recorded_.program.symbols = sizes_.symbols();
    recorded_.results.resize(results);
    begin_stage();
  }

  TracedBackward run() {
    // One state for all nodes: it hands out the sizes that they have saved, in the order of the walk.
    dynamo::TraceState state(sizes_.saved_numbers(), 0);
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
    // As Engine::evaluate_function: tensor hooks of a node that is not called run before its gradients are captured. Those
    // of any other node run after that, in `run_node`.
    if (!call.is_needed && has_tensor_hooks(*call.node)) {
      gradients = run_host({.code = HostAction::kTensorHooks, .call = index}, gradients, {});
    }
    for (const BackwardCall::Capture& capture : call.captures) {
      hand_out(gradients[static_cast<size_t>(capture.input)], {false, static_cast<size_t>(capture.output), 0});
    }
    if (!call.is_needed) {
      return;
    }
    // Other code may read the gradient of a leaf. The leaf then takes it at its place in the engine's order, else at the end
    // of the run.
    if (call.is_leaf && walk_.runs_other_code()) {
      run_host({.code = HostAction::kLeaf, .call = index}, gradients, {});
    } else if (call.is_leaf) {
      hand_out(gradients.front(), {true, index, 0});
    } else {
      run_node(index, std::move(gradients), state);
    }
  }

  void run_node(size_t index, variable_list gradients, dynamo::TraceState& state) {
    const BackwardCall& call = walk_.calls()[index];
    if (has_hooks_before(*call.node)) {
      gradients = run_host({.code = HostAction::kHooksBefore, .call = index}, gradients, {});
    }
    // Hooks after the node see what it took. `run_host` replaces these tensors, which the tracer of the next stage does not
    // know.
    variable_list given = gradients;
    std::optional<variable_list> results;
    if (!call.is_opaque) {
      results = record_node(call, gradients, state);
    }
    if (!results) {
      results = run_host({.code = HostAction::kNode, .call = index}, gradients, {}, &given);
    }
    if (has_hooks_after(*call.node)) {
      results = run_host({.code = HostAction::kHooksAfter, .call = index}, *results, given);
    }
    for (size_t i = 0; i < results->size(); ++i) {
      const torch::autograd::Edge& edge = call.node->next_edge(i);
      // The engine takes no gradient to a node that it does not run, and the walk has no call for such a node.
      if (edge.is_valid() && walk_.runs(*edge.function) && (*results)[i].defined()) {
        pass_on(edge, (*results)[i]);
      }
    }
  }

  // Returns nothing if the formula raises with tensors of a trace. With real ones it need not, or raises its own error.
  std::optional<variable_list> record_node(const BackwardCall& call, const variable_list& gradients,
                                           dynamo::TraceState& state) {
    // LibTorch has one place for the interface in a process.
    static std::mutex one_at_a_time;
    const std::lock_guard<std::mutex> lock(one_at_a_time);
    bool has_raised = false;
    const dynamo::PyCompilerGuard guard(make_node_interface(has_raised));
    const TracingScope scope(*tracer_);
    dynamo::SwapSavedVariables saved(walk_.compiler(), state, nullptr, *call.entry);
    variable_list results = call.node->apply_with_saved(gradients, saved);
    if (has_raised) {
      return std::nullopt;
    }
    // Within the scope: to fit a result may take operators, such as a sum over expanded dims.
    sizes_.fit_results(call, results);
    return results;
  }

  void pass_on(const torch::autograd::Edge& edge, const at::Tensor& gradient) {
    const TracingScope scope(*tracer_);
    variable_list& inputs = incoming_[index_of(*edge.function)];
    inputs.resize(edge.function->num_inputs());
    at::Tensor& sum = inputs[edge.input_nr];
    sum = sum_of_gradients(sum, gradient);
  }

  void hand_out(const at::Tensor& gradient, GradientTarget target) {
    // AccumulateGrad ignores an undefined gradient, and autograd::grad returns one as it is.
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
    tracer_ = std::make_unique<Tracer>(sizes_.symbols());
    stage_ = {};
    slots_.clear();
    kept_.clear();
    // LibTorch puts these into a node while it calls the node. They belong to one tracer, so each stage makes its own, and
    // drops in the end those that it has not used.
    for (size_t i = 0; i < walk_.tensors().size(); ++i) {
      walk_.compiler().tensor_args.lookup(walk_.saved_tensors()[i]).proxy_tensor =
          tracer_->add_saved(walk_.tensors()[i], sizes_.facts_of_saved(i));
    }
  }

  // Runs host code on real tensors. Returns its results as tensors of the next stage, and replaces `given` of the node by
  // such.
  variable_list run_host(HostCall host, const variable_list& given, const variable_list& before,
                         variable_list* kept = nullptr) {
    host.given = slots_of(given);
    host.before = slots_of(before);
    // Values that later calls take become results of this stage's graph. The next stage begins with them, as does a run
    // that goes on without graphs because the code acts in another way.
    for (auto& [call, gradients] : incoming_) {
      host.waiting.push_back({call, slots_of(gradients)});
    }
    variable_list real = run_host_action(host.code, *walk_.calls()[host.call].node, reals_of(host.given),
                                         reals_of(host.before), keeps_graph_);
    TraceKeyParts outcome = trace_key_parts(real);
    host.outcome = std::move(outcome.structure);
    for (size_t i = 0; i < real.size(); ++i) {
      host.results.push_back(real[i].defined() ? Slot(reals_.size()) : Slot());
      if (real[i].defined()) {
        std::optional<TensorFacts> facts = facts_of_host_result(host, i, real[i]);
        append_outcome_sizes(host.outcome_sizes, real[i], facts);
        add_slot(std::move(real[i]), std::move(facts));
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
    if (!recorded_.refusal && tracer_->refusal()) {
      recorded_.refusal = tracer_->refusal();
    } else if (!recorded_.refusal && !tracer_->captured().empty()) {
      // Neither the walk of another backward nor its key has such a tensor.
      recorded_.refusal = Refusal::because("a node computes with a tensor that it has not saved");
    }
    // After a refusal, stages go on without graphs: this backward still has to compute its gradients.
    if (!recorded_.refusal && !stage_.given.empty()) {
      std::unique_ptr<Graph> graph = tracer_->finish(/*has_facts=*/true);
      drop_unused_inputs(*graph);
      stage_.graph = compile_(std::move(graph), sizes_.captured(stage_.sizes));
    }
    recorded_.program.stages.push_back(std::move(stage_));
  }

  // The inputs of a graph are all symbols, all tensors of the walk, then slots.
  void drop_unused_inputs(Graph& graph) {
    std::vector<size_t> taken;
    const size_t symbols = tracer_->symbols();
    const size_t tensors = walk_.tensors().size();
    for (size_t i = 0; i < graph.inputs().size(); ++i) {
      if (!graph.inputs()[i]->has_uses()) {
        continue;
      }
      if (i < symbols) {
        stage_.sizes.push_back(i);
      } else if (i < symbols + tensors) {
        stage_.saved.push_back(i - symbols);
      } else {
        taken.push_back(stage_.taken[i - symbols - tensors]);
      }
    }
    for (size_t i = graph.inputs().size(); i-- > 0;) {
      if (!graph.inputs()[i]->has_uses()) {
        graph.body().remove_param(i);
      }
    }
    stage_.taken = std::move(taken);
  }

  // ---- slots --------------------------------------------------------------------------------------------------------

  // Returns the slot that a tensor of this stage leaves in.
  size_t slot_of(const at::Tensor& tensor) {
    const auto [found, is_new] = slots_.try_emplace(keys_of(tensor), reals_.size());
    if (is_new) {
      kept_.push_back(tensor);
      const TensorFacts* facts = tracer_->symbolic_facts(tensor);
      add_slot(real_tensor_of(tensor), facts != nullptr ? std::optional(*facts) : std::nullopt);
      tracer_->add_output(tensor);
      stage_.given.push_back(found->second);
    }
    return found->second;
  }

  void add_slot(at::Tensor real, std::optional<TensorFacts> facts) {
    reals_.push_back(std::move(real));
    slot_facts_.push_back(std::move(facts));
  }

  // In the order of TraceKeyParts::sizes.
  static void append_outcome_sizes(std::vector<Dim>& all, const at::Tensor& real, const std::optional<TensorFacts>& facts) {
    if (real.layout() != c10::kStrided) {
      return;
    }
    const auto append = [&](at::IntArrayRef numbers, const std::optional<std::vector<Dim>>& dims) {
      for (size_t i = 0; i < numbers.size(); ++i) {
        all.push_back(!facts ? Dim::known(numbers[i]) : dims ? (*dims)[i] : Dim::unknown());
      }
    };
    append(real.sizes(), facts ? facts->sizes : std::nullopt);
    if (has_gaps(real)) {
      append(real.strides(), facts ? facts->strides : std::nullopt);
    }
  }

  // Hooks mostly return gradients of the sizes that they were given. Nothing else is known.
  std::optional<TensorFacts> facts_of_host_result(const HostCall& host, size_t index, const at::Tensor& real) const {
    if (host.code == HostAction::kNode || real.layout() != c10::kStrided) {
      return sizes_.facts_of_result(walk_.calls()[host.call], index, real);
    }
    const Slot given = index < host.given.size() ? host.given[index] : Slot();
    return sizes_.facts_like(given ? slot_facts_[*given] : std::nullopt, real);
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
          entered_.push_back(tracer_->add_saved(reals_[*slot], slot_facts_[*slot]));
          // A gradient that only crosses the stage keeps its slot, and is no output of the graph.
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
    const bool is_input = value != nullptr && value->node() == tracer_->graph().body().param_node();
    const size_t index = is_input ? value->offset() - tracer_->symbols() : 0;
    return is_input && index < walk_.tensors().size() ? walk_.tensors()[index] : real_of(tensor);
  }

  BackwardSchedule& walk_;
  const BackwardSizes sizes_;
  const bool keeps_graph_;
  const CompileStage& compile_;
  TracedBackward recorded_;
  std::unordered_map<const torch::autograd::Node*, size_t> indices_;  // of the walk's calls
  std::map<size_t, variable_list> incoming_;                          // by call
  variable_list reals_;                                               // by slot
  std::vector<std::optional<TensorFacts>> slot_facts_;                // by slot; of symbolic sizes
  // Of the current stage:
  std::unique_ptr<Tracer> tracer_;
  BackwardStage stage_;
  std::unordered_map<const void*, size_t> slots_;
  variable_list kept_;     // what `slots_` has an address of
  variable_list entered_;  // the last ones stand for stage_.taken
};

}  // namespace

TracedBackward record_backward(BackwardSchedule& walk, const SizePattern& pattern, size_t results, bool keeps_graph,
                               const CompileStage& compile) {
  return BackwardTracer(walk, pattern, results, keeps_graph, compile).run();
}

}  // namespace sconce
