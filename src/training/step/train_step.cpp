#include <sconce/train_step.h>

#include "analysis/effects.h"
#include "analysis/memory/alias_sets.h"
#include "base/call_watch.h"
#include "base/exception_message.h"
#include "base/flat_map.h"
#include "base/nearest_name.h"
#include "base/tensors_in.h"
#include "ir/graph.h"
#include "ir/memory_types.h"
#include "trace/tracing_conditions.h"
#include "trace/undone_writes.h"
#include "training/parallel/rank_group.h"
#include "training/parallel/synchronize_batch_norm.h"
#include "training/step/train_trace.h"

#include <sconce/compiled_backward.h>

#include <ATen/autocast_mode.h>
#include <ATen/core/grad_mode.h>
#include <ATen/core/jit_type.h>
#include <c10/util/ScopeExit.h>
#include <torch/csrc/autograd/functions/accumulate_grad.h>
#include <torch/optim/lbfgs.h>
#include <torch/optim/optimizer.h>

#include <algorithm>
#include <cmath>

namespace sconce {
namespace {

bool holds_lists_or_dicts(const Value& input) {
  return (memory_kinds_within(input.type()) & (kListMemory | kDictMemory)) != 0;
}

// Analyses do not tell the memory of containers in containers from that of the tensors in them.
bool may_change_containers(const AliasSets& sets, const Value& input) {
  const c10::TypePtr& type = input.type();
  const bool is_flat = (memory_kinds_of(type) & ~(kListMemory | kDictMemory)) == 0 && !holds_containers(type);
  return holds_lists_or_dicts(input) && (is_flat ? sets.may_be_written(input) : sets.may_be_written_within(input));
}

// Returns why calls of the method cannot be recorded with other containers in the place of its arguments: it may change a
// list or a dict that it is given. Null if it does not.
const char* why_arguments_may_change(const Graph& graph) {
  const auto inputs = graph.inputs().slice(1);  // after the module
  const auto any_input = [&](const auto& changes) { return std::any_of(inputs.begin(), inputs.end(), changes); };
  if (any_input([](const Value* input) { return holds_lists_or_dicts(*input); })) {
    const AliasSets sets(graph);
    if (any_input([&](const Value* input) { return may_change_containers(sets, *input); })) {
      return "the module may change a list or a dict among its arguments";
    }
  }
  return nullptr;
}

// The thread's autocast on a device while it lives.
class AutocastScope {
 public:
  AutocastScope(std::optional<c10::ScalarType> dtype, c10::DeviceType device) : is_on_(dtype.has_value()), device_(device) {
    if (is_on_) {
      was_enabled_ = at::autocast::is_autocast_enabled(device_);
      dtype_ = at::autocast::get_autocast_dtype(device_);
      at::autocast::set_autocast_enabled(device_, true);
      at::autocast::set_autocast_dtype(device_, *dtype);
      at::autocast::increment_nesting();
    }
  }
  ~AutocastScope() {
    if (is_on_) {
      if (at::autocast::decrement_nesting() == 0) {
        at::autocast::clear_cache();
      }
      at::autocast::set_autocast_enabled(device_, was_enabled_);
      at::autocast::set_autocast_dtype(device_, dtype_);
    }
  }
  AutocastScope(const AutocastScope&) = delete;
  AutocastScope& operator=(const AutocastScope&) = delete;

 private:
  const bool is_on_;
  const c10::DeviceType device_;
  bool was_enabled_ = false;
  c10::ScalarType dtype_ = c10::kFloat;
};

constexpr const char* kReadsOthers = "the module reads other numbers from tensors than in the recorded call";

// Adds a gradient to a parameter's, as the engine does.
void accumulate(const at::Tensor& parameter, at::Tensor gradient) {
  at::Tensor& sum = parameter.mutable_grad();
  torch::autograd::AccumulateGrad::accumulateGrad(parameter, sum, gradient, /*num_expected_refs=*/1,
                                                  [&](at::Tensor&& updated) { sum = std::move(updated); });
}

// The state of leaves, apart from their elements, that a step may change.
class LeafStates {
 public:
  explicit LeafStates(const std::vector<at::Tensor>& tensors) {
    for (const at::Tensor& tensor : tensors) {
      if (tensor.defined() && tensor.is_leaf() && !tensor.is_inference()) {
        states_.push_back({tensor, tensor.grad(), tensor.requires_grad()});
      }
    }
  }
  // A backward adds to the elements of gradients in place.
  void add_gradients_to(std::vector<at::Tensor>& tensors) const {
    for (const State& state : states_) {
      if (state.gradient.defined()) {
        tensors.push_back(state.gradient);
      }
    }
  }
  void restore() const {
    for (const State& state : states_) {
      if (state.leaf.requires_grad() != state.requires_grad) {
        state.leaf.set_requires_grad(state.requires_grad);
      }
      if (!state.leaf.grad().is_same(state.gradient)) {
        state.leaf.mutable_grad() = state.gradient;
      }
    }
  }

 private:
  struct State {
    at::Tensor leaf;
    at::Tensor gradient;
    bool requires_grad;
  };
  std::vector<State> states_;
};

}  // namespace

// ---- TrainOptions ---------------------------------------------------------------------------------------------------

TrainOptions& TrainOptions::method(std::string name) {
  method_ = std::move(name);
  return *this;
}
TrainOptions& TrainOptions::clip_norm(double norm) {
  TORCH_CHECK(norm > 0, "TrainOptions::clip_norm: ", norm, " is no positive norm");
  clip_norm_ = norm;
  return *this;
}
TrainOptions& TrainOptions::clip_value(double value) {
  TORCH_CHECK(value > 0, "TrainOptions::clip_value: ", value, " is no positive bound");
  clip_value_ = value;
  return *this;
}
TrainOptions& TrainOptions::accumulate(size_t calls) {
  TORCH_CHECK(calls > 0, "TrainOptions::accumulate: a step takes at least one call");
  accumulate_ = calls;
  return *this;
}
TrainOptions& TrainOptions::autocast(c10::ScalarType dtype) {
  TORCH_CHECK(dtype == at::kBFloat16 || dtype == at::kHalf,
              "TrainOptions::autocast: steps cast to bfloat16 or float16, not to ", dtype);
  autocast_ = dtype;
  return *this;
}
TrainOptions& TrainOptions::keep_gradients(bool on) {
  keep_gradients_ = on;
  return *this;
}
TrainOptions& TrainOptions::data_parallel(const DataParallel& ranks) {
  data_parallel_ = ranks;
  return *this;
}
TrainOptions& TrainOptions::synchronize_batch_norm(bool on) {
  synchronize_batch_norm_ = on;
  return *this;
}
TrainOptions& TrainOptions::shard_optimizer(bool on) {
  shard_optimizer_ = on;
  return *this;
}

// ---- TrainStep ------------------------------------------------------------------------------------------------------

class TrainStep::Impl {
 public:
  Impl(Module module, GeneralLoss loss, torch::optim::Optimizer& optimizer, const TrainOptions& options)
      : method_{std::move(module), options.method()},
        loss_(std::move(loss)),
        optimizer_(optimizer),
        options_(options),
        group_(group_of(options)),
        of_plans_(options_of_plans(method_.module.options(), group_ != nullptr)),
        takes_closure_(dynamic_cast<const torch::optim::LBFGS*>(&optimizer) != nullptr),
        update_(optimizer, of_plans_),
        backwards_(of_plans_),
        table_(of_plans_.plan_cache_capacity()) {
    const std::string& name = method_.name;
    TORCH_CHECK(method_.module.has_method(name), "TrainOptions::method: the module has no method '", name,
                "'; it has: ", sconce::join(method_.module.method_names()));
    if (takes_closure_) {
      expect_closure_fits();
    }
    TORCH_CHECK(!options_.shard_optimizer() || !options_.keep_gradients(),
                "TrainOptions: a sharded step cannot keep gradients: parameters are exchanged in their memory");
    if (group_ != nullptr) {
      if (group_->begins_alike()) {
        options_.data_parallel()->broadcast(method_.module);
      }
      if (options_.synchronize_batch_norm()) {
        Options with_norms = method_.module.options();
        const c10::DeviceType type = optimizer.param_groups().at(0).params().at(0).device().type();
        with_norms.passes().before(
            Stage::kRequired, "synchronize_batch_norm",
            [group = group_->name_of_norms(type)](Graph& graph) { return synchronize_batch_norm(graph, group); },
            "norms with the mean and variance of all ranks' batches");
        method_.module = accelerate(method_.module.script_module(), with_norms);
      }
    }
  }

  // `share`: of the loss in the step's; the default without a value.
  at::Tensor run(const std::vector<c10::IValue>& inputs, const std::vector<c10::IValue>& targets,
                 std::optional<double> share) {
    if (share) {
      TORCH_CHECK(std::isfinite(*share) && *share >= 0, "TrainStep: ", *share, " is no share of a loss");
      TORCH_CHECK(!takes_closure_ || *share == 1, "TrainStep: LBFGS steps by the whole loss of a call, not by a share of ",
                  *share, "; leave out the share");
    }
    at::Tensor loss;
    begin_call(share);
    run_with_others([&] {
      const TrainedParameters parameters = begin_update();
      if (takes_closure_) {
        loss = step_by_closure(inputs, targets, parameters);
        return;
      }
      StepResult result = run_call(inputs, targets, parameters);
      loss = std::move(result.loss);
      ++batches_;
      end_call(result.is_updated);
    });
    return loss;
  }

  std::optional<size_t> skip() {
    std::optional<size_t> ranks;
    begin_call(std::nullopt);
    run_with_others([&] {
      // The others learn of it at once.
      TORCH_CHECK(group_ == nullptr || !options_.synchronize_batch_norm(),
                  "TrainStep::skip: other ranks wait for this one in their batch norms, which are synchronized");
      begin_update();
      ranks = end_call(/*is_updated=*/false);
    });
    return ranks;
  }

  size_t join() {
    TORCH_CHECK(calls_ == 0, "TrainStep::join: ", calls_, " calls of a step of ", options_.accumulate(), " were made");
    for (size_t steps = 0;; ++steps) {
      std::optional<size_t> ranks;
      while (!ranks) {
        ranks = skip();
      }
      if (*ranks == 0) {
        return steps;
      }
    }
  }

  void unshard_optimizer() {
    TORCH_CHECK(calls_ == 0, "TrainStep::unshard_optimizer: ", calls_, " calls of a step of ", options_.accumulate(),
                " were made");
    if (shards_ != nullptr) {
      run_with_others([&] { shards_->unshard(); });
    }
  }

  TrainExplanation explain() const {
    const ServedCalls served = table_.served();
    TrainExplanation explanation;
    explanation.by_plan = served.by_plan;
    explanation.updated_by_plan = updated_by_plan_;
    explanation.eager = served.eager;
    explanation.reasons = served.reasons;
    explanation.why_sizes_are_fixed = table_.why_sizes_are_fixed();
    for (const auto& recording : table_.recordings()) {
      const auto& trace = static_cast<const TrainTrace&>(*recording);
      trace.explain(explanation.plans);
      if (explanation.reductions.empty()) {
        explanation.reductions = trace.reductions();
      }
    }
    explanation.optimizer = update_.explain();
    explanation.optimizer.steps += updated_by_plan_;
    explanation.optimizer.captured_steps += updated_by_plan_;
    explanation.optimizer.captured_updates += updates_by_plan_;
    explanation.state_bytes = shards_ != nullptr ? shards_->state_bytes() : 0;
    return explanation;
  }

  void wait_for_compiles() const { table_.wait_for_compiles(); }

 private:
  // LBFGS compares gradients and losses of several places, which must be those of one function.
  void expect_closure_fits() const {
    TORCH_CHECK(
        !clipping().is_on(),
        "TrainStep: LBFGS estimates the curvature of the loss from differences of gradients, and clipped gradients are "
        "not those of the loss; leave out clip_norm and clip_value, or use another optimizer");
    TORCH_CHECK(
        options_.accumulate() == 1,
        "TrainStep: LBFGS evaluates the loss several times in a step, and the batches of earlier calls are gone by then; "
        "leave out accumulate, and give all examples in one call");
    TORCH_CHECK(
        group_ == nullptr,
        "TrainStep: LBFGS evaluates the loss several times in a step, and ranks exchange gradients only once; train on "
        "one rank, or use another optimizer");
  }

  // Returns null for a process that is alone.
  static std::shared_ptr<RankGroup> group_of(const TrainOptions& options) {
    const auto& ranks = options.data_parallel();
    return ranks && ranks->world_size() > 1 ? ranks->group() : nullptr;
  }
  // Ranks that update by other programs would round otherwise: a kernel that one of them is still compiling is one.
  static Options options_of_plans(Options options, bool has_others) {
    return has_others && options.compile() == CompileMode::kBackground ? options.compile(CompileMode::kBlocking) : options;
  }

  void begin_call(std::optional<double> share) {
    const bool has_share = share || options_.accumulate() > 1 || group_ != nullptr;
    if (has_share && !seed_.defined()) {
      seed_ = at::empty({}, at::TensorOptions(at::kDouble).device(trained_parameters(optimizer_).tensors.front().device()));
      table_.clear();  // recordings without a seed
    }
    const size_t ranks = group_ != nullptr ? static_cast<size_t>(group_->world()) : 1;
    const double value = share.value_or(1.0 / static_cast<double>(options_.accumulate() * ranks));
    if (seed_.defined() && set_share_ != value) {
      seed_.fill_(value);
      set_share_ = value;
    }
    if (calls_ == 0) {
      zero_gradients();
    }
  }

  // Updates in the last call of a step, unless the call's plan has. Then returns how many ranks had a batch in the step: at
  // least this one.
  std::optional<size_t> end_call(bool is_updated) {
    if (++calls_ < options_.accumulate()) {
      return std::nullopt;
    }
    calls_ = 0;
    size_t ranks = std::exchange(batches_, 0) > 0 ? 1 : 0;
    if (is_updated) {
      return ranks;
    }
    if (buckets_ != nullptr) {
      ranks = static_cast<size_t>(buckets_->reduce(/*scale=*/1, /*has_batch=*/ranks > 0));
    }
    if (ranks > 0) {
      update();
    }
    return ranks;
  }

  // Returns what the step trains. Makes ready what it exchanges with other ranks.
  TrainedParameters begin_update() {
    if (shards_ != nullptr) {
      shards_->shard();
      for (const at::Tensor& parameter : shards_->parameters().tensors) {
        TORCH_CHECK(parameter.requires_grad(), "TrainOptions::shard_optimizer: a parameter of sizes ", parameter.sizes(),
                    " requires no gradient any more; make another TrainStep");
      }
      return shards_->parameters();
    }
    TrainedParameters parameters = trained_parameters(optimizer_);
    if (group_ != nullptr) {
      buckets_ = group_->buckets_of(parameters.tensors);
      if (options_.shard_optimizer()) {
        shards_ = std::make_shared<OptimizerShards>(*group_, buckets_, optimizer_, parameters);
      }
    }
    return parameters;
  }

  void zero_gradients() {
    optimizer_.zero_grad();
    if (shards_ != nullptr) {
      for (const at::Tensor& parameter : shards_->parameters().tensors) {
        parameter.mutable_grad() = at::Tensor();
      }
    }
  }

  // An exception ends the step, on all ranks.
  template <typename Call>
  void run_with_others(const Call& call) {
    const at::AutoGradMode with_gradients(true);
    if (group_ != nullptr) {
      group_->expect_usable();
    }
    try {
      call();
    } catch (...) {
      calls_ = 0;
      batches_ = 0;
      zero_gradients();
      if (group_ != nullptr) {
        group_->fail(std::current_exception());
      }
      throw;
    }
  }

  // Lets the optimizer evaluate loss and gradients as often as it likes. Returns the first loss.
  at::Tensor step_by_closure(const std::vector<c10::IValue>& inputs, const std::vector<c10::IValue>& targets,
                             const TrainedParameters& parameters) {
    const at::Tensor loss = update_.step([&] {
      zero_gradients();
      return run_call(inputs, targets, parameters).loss;
    });
    if (!options_.keep_gradients()) {
      zero_gradients();
    }
    return loss;
  }

  // Runs forward, loss and backward. Adds the gradients to those of the parameters, or updates the parameters.
  StepResult run_call(const std::vector<c10::IValue>& inputs, const std::vector<c10::IValue>& targets,
                      const TrainedParameters& parameters) {
    const AutocastScope autocast(options_.autocast(), parameters.tensors.front().device().type());
    const StepArguments arguments(inputs, targets);
    std::vector<at::Tensor> leaves = parameters.tensors;
    for (const at::Tensor& argument : arguments.tensors) {
      if (!argument.is_leaf()) {
        return run_eagerly(arguments, "an argument has a history");
      }
      if (argument.requires_grad()) {
        leaves.push_back(argument);
      }
    }
    if (!why_never_) {
      const Graph& graph = method_.graph();
      why_never_ = why_arguments_may_change(graph);
      for_each_node(graph.body(),
                    [this](const Node* node) { sets_attributes_ = sets_attributes_ || node->opcode() == Opcode::kSetAttr; });
    }
    if (*why_never_ != nullptr) {
      return run_eagerly(arguments, *why_never_);
    }
    if (const char* reason = why_not_now(leaves)) {
      return run_eagerly(arguments, reason);
    }
    const RecordingKey key(bytes_of(arguments.key.structure), arguments.key.sizes);
    const c10::ivalue::Object& module = *method_.module.script_module()._ivalue();
    const auto holds = [&](Recording& trace) {
      return static_cast<TrainTrace&>(trace).holds(module, arguments, parameters);
    };
    RecordingCache::Found found = table_.find(key, holds);
    auto trace = std::static_pointer_cast<TrainTrace>(std::move(found.recording));
    StepResult result;
    if (trace == nullptr) {
      const RecordingCache::Decision decision = table_.decide(key);
      if (!decision.pattern) {
        return run_eagerly(arguments, decision.why_not);
      }
      const bool may_be_undone = decision.pattern->has_symbols() || sets_attributes_;
      trace = may_be_undone ? record_undoably(arguments, parameters, *decision.pattern, result)
                            : record(arguments, parameters, *decision.pattern, result);
      table_.count_eager(trace->refusal.empty() ? "it was recorded" : trace->refusal);
      table_.insert(key, trace, holds);
    } else if (trace->is_ready() && !trace->reads_others()) {
      std::optional<StepResult> by_plan = StepResult();
      {
        const auto count = c10::make_scope_exit([&] {  // also a run that raises
          if (by_plan) {
            table_.count_run(*trace);
          }
        });
        by_plan = trace->run(arguments, found.symbols);
      }
      if (!by_plan) {
        return run_with_compiled_backward(arguments, kReadsOthers);
      }
      result = std::move(*by_plan);
      if (result.is_updated) {
        ++updated_by_plan_;
        updates_by_plan_ += trace->updated_parameters();
      }
    } else {
      return run_with_compiled_backward(arguments, trace->is_ready() ? kReadsOthers : trace->why_no_plan());
    }
    const at::NoGradGuard no_grad;
    for (auto& [number, gradient] : result.of_arguments) {
      accumulate(arguments.tensors[number], std::move(gradient));
    }
    for (size_t i = 0; i < result.gradients.size(); ++i) {
      if (result.gradients[i].defined()) {
        accumulate(trace->leaves()[i], std::move(result.gradients[i]));
      }
    }
    return result;
  }

  // Code that cannot run with symbolic sizes may raise. The call is then run again without a recording, so that any
  // exception is the program's own. The recording ends before an effect that cannot be undone, so that this happens once.
  //
  // The call also runs as it is if the module sets an attribute: a trace cannot give the tensor its history.
  std::shared_ptr<TrainTrace> record_undoably(const StepArguments& arguments, const TrainedParameters& parameters,
                                              const SizePattern& pattern, StepResult& result) {
    const auto module = method_.module.script_module()._ivalue();
    const ModuleState before(module);
    std::vector<at::Tensor> writable = tensors_in(c10::IValue(module));
    writable.insert(writable.end(), arguments.tensors.begin(), arguments.tensors.end());
    const LeafStates leaves(writable);
    leaves.add_gradients_to(writable);
    UndoneWrites undone(writable);
    std::string refusal;
    {
      const CallWatch watch(CallWatch::AtEffect::kRaise);
      try {
        auto trace = record(arguments, parameters, pattern, result);
        if (before.holds()) {
          undone.keep();
          return trace;
        }
        refusal = trace->refusal;
      } catch (const std::exception& error) {
        const std::string effect = watch.seen();
        refusal = effect.empty() ? "it raises while it is recorded: " + message_of(error)
                                 : effect + ", which a recording might repeat";
      }
    }
    undone.undo();
    before.restore();
    leaves.restore();
    const EagerBackward by_engine;
    result = run_operators(arguments);
    return TrainTrace::refused(method_.module, arguments, parameters, pattern, refusal);
  }

  std::shared_ptr<TrainTrace> record(const StepArguments& arguments, const TrainedParameters& parameters,
                                     const SizePattern& pattern, StepResult& result) {
    try {
      // The gradients of several calls, and those that the caller wants, are tensors of the parameters.
      const StepEnding ending{.optimizer = optimizer_,
                              .clipping = clipping(),
                              .plans_update = options_.accumulate() == 1 && !options_.keep_gradients(),
                              .seed = seed_,
                              .buckets = buckets_,
                              .shards = shards_,
                              .group = group_ != nullptr ? group_->name() : ""};
      return TrainTrace::record(method_, of_plans_, checked_loss(), arguments, parameters, pattern, ending, result);
    } catch (...) {
      replace_traced_values(*method_.module.script_module()._ivalue());
      throw;
    }
  }

  // A call of a kind that is recorded, or refused.
  StepResult run_with_compiled_backward(const StepArguments& arguments, const std::string& reason) {
    table_.count_eager(reason);
    const CompiledBackward scope(backwards_);
    return run_operators(arguments);
  }

  StepResult run_eagerly(const StepArguments& arguments, const std::string& reason) {
    table_.count_eager(reason);
    const EagerBackward by_engine;
    return run_operators(arguments);
  }

  StepResult run_operators(const StepArguments& arguments) {
    const auto first_target = arguments.values.begin() + static_cast<std::ptrdiff_t>(arguments.inputs);
    at::Tensor loss =
        checked_loss()(method_({arguments.values.begin(), first_target}), {first_target, arguments.values.end()});
    loss.backward(seed_.defined() ? seed_of(loss, seed_) : at::Tensor());
    return {.loss = loss.detach()};
  }

  GeneralLoss checked_loss() const {
    return [this](const c10::IValue& output, const std::vector<c10::IValue>& targets) {
      at::Tensor loss = loss_(output, targets);
      TORCH_CHECK(loss.defined(), "the loss function returned nothing; it must return one number");
      TORCH_CHECK(loss.numel() == 1,
                  "grad can be implicitly created only for scalar outputs: the loss function must return one number");
      TORCH_CHECK(
          loss.requires_grad(),
          "element 0 of tensors does not require grad and does not have a grad_fn: the loss must depend on a parameter");
      return loss;
    };
  }

  // Clips all gradients, those of parameters that the model itself had require a gradient as well.
  void clip() {
    const at::NoGradGuard no_grad;
    std::vector<at::Tensor> gradients;
    FlatSet<const c10::TensorImpl*> listed;
    const auto add = [&](const std::vector<at::Tensor>& parameters) {
      for (const at::Tensor& parameter : parameters) {
        if (parameter.grad().defined() && listed.insert(parameter.unsafeGetTensorImpl()).second) {
          gradients.push_back(parameter.grad().data());
        }
      }
    };
    if (shards_ != nullptr) {
      add(shards_->parameters().tensors);
    } else {
      for (const torch::optim::OptimizerParamGroup& group : optimizer_.param_groups()) {
        add(group.params());
      }
    }
    if (options_.clip_norm() && !gradients.empty()) {
      const at::Tensor factor = clip_factor(gradients, *options_.clip_norm());
      if (group_ != nullptr) {
        group_->send_from_rank_0(factor);
      }
      for (const at::Tensor& gradient : gradients) {
        gradient.mul_(factor);
      }
    }
    if (const auto value = options_.clip_value()) {
      for (const at::Tensor& gradient : gradients) {
        gradient.clamp_(-*value, *value);
      }
    }
  }

  Clipping clipping() const { return {options_.clip_norm(), options_.clip_value()}; }

  void update() {
    if (clipping().is_on()) {
      clip();
    }
    if (shards_ != nullptr) {
      shards_->load();
      shards_->take_gradients();
    }
    update_.step();
    if (shards_ != nullptr) {
      shards_->gather();
    }
    if (!options_.keep_gradients()) {
      zero_gradients();
    }
  }

  TrainedMethod method_;
  const GeneralLoss loss_;
  torch::optim::Optimizer& optimizer_;
  const TrainOptions options_;
  const std::shared_ptr<RankGroup> group_;  // null without other ranks
  const Options of_plans_;
  const bool takes_closure_;  // the optimizer's step does, and cannot do without
  CapturedOptimizer update_;
  const BackwardCache backwards_;             // of calls without a plan
  bool sets_attributes_ = false;              // the module may; once `why_never_` is known
  std::optional<const char*> why_never_;      // steps are recorded; null if they may be. Nothing before the first call
  RecordingCache table_;                      // of TrainTraces
  std::shared_ptr<OptimizerShards> shards_;   // null if every rank updates all parameters
  std::shared_ptr<GradientBuckets> buckets_;  // of the parameters of the call; null without other ranks
  at::Tensor seed_;                           // the gradient of the loss, a number; undefined where it is 1
  std::optional<double> set_share_;           // its value
  size_t calls_ = 0;                          // since the optimizer's last step
  size_t batches_ = 0;                        // in these
  uint64_t updated_by_plan_ = 0;              // calls whose plans updated the parameters
  uint64_t updates_by_plan_ = 0;              // of parameters, in these
};

TrainStep::TrainStep(Module module, GeneralLoss loss, torch::optim::Optimizer& optimizer, const TrainOptions& options)
    : impl_(std::make_unique<Impl>(std::move(module), std::move(loss), optimizer, options)) {}
TrainStep::TrainStep(Module module, Loss loss, torch::optim::Optimizer& optimizer, const TrainOptions& options)
    : TrainStep(
          std::move(module),
          [loss = std::move(loss)](const c10::IValue& output, const std::vector<c10::IValue>& targets) {
            TORCH_CHECK(output.isTensor(),
                        "the module returns no tensor, which the loss function takes; give one of the form "
                        "TrainStep::GeneralLoss");
            TORCH_CHECK(targets.size() == 1 && targets.front().isTensor(),
                        "the loss function takes one tensor as the target, and was given ", targets.size(), " value(s)");
            return loss(output.toTensor(), targets.front().toTensor());
          },
          optimizer, options) {}
TrainStep::~TrainStep() = default;

at::Tensor TrainStep::operator()(const std::vector<c10::IValue>& inputs, const std::vector<c10::IValue>& targets) {
  return impl_->run(inputs, targets, std::nullopt);
}
at::Tensor TrainStep::operator()(const std::vector<c10::IValue>& inputs, const std::vector<c10::IValue>& targets,
                                 double share) {
  return impl_->run(inputs, targets, share);
}
std::optional<size_t> TrainStep::skip() { return impl_->skip(); }
size_t TrainStep::join() { return impl_->join(); }
void TrainStep::unshard_optimizer() { impl_->unshard_optimizer(); }
TrainExplanation TrainStep::explain() const { return impl_->explain(); }
void TrainStep::wait_for_compiles() const { impl_->wait_for_compiles(); }

}  // namespace sconce
