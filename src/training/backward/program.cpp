#include "training/backward/program.h"

#include "base/assert.h"
#include "training/backward/node_hooks.h"

#include <algorithm>
#include <unordered_map>
#include <utility>

namespace sconce {
namespace {

using torch::autograd::variable_list;

void run_leaf(torch::autograd::Node& leaf, variable_list gradients) {
  gradients = call_hooks_before(leaf, std::move(gradients));
  // AccumulateGrad keeps a gradient that has no other holder. It expects the engine to be one if there are hooks after it.
  if (!has_hooks_after(leaf)) {
    leaf(std::move(gradients));
    return;
  }
  const variable_list given = gradients;
  call_hooks_after(leaf, leaf(std::move(gradients)), given);
}

// A leaf keeps a gradient that nothing else holds, and copies any other.
at::Tensor take(const BackwardProgram& program, size_t slot, variable_list& slots) {
  const auto users = std::count_if(program.targets.begin(), program.targets.end(),
                                   [slot](const GradientTarget& target) { return target.slot == slot; });
  return users == 1 ? std::move(slots[slot]) : slots[slot];
}

// Runs the stages. Once host code does not act as when it was recorded, this is LibTorch's autograd engine on one thread: it
// calls the nodes that are left, in the order in which BackwardTracer called them, with real tensors.
class Run {
 public:
  Run(const BackwardProgram& program, const BackwardSchedule& walk, const std::vector<int64_t>& symbols, size_t results,
      bool keeps_graph)
      : program_(program),
        walk_(walk),
        symbols_(symbols),
        keeps_graph_(keeps_graph),
        slots_(program.slots),
        results_(results) {}

  variable_list run() {
    for (const BackwardStage& stage : program_.stages) {
      run_graph(stage);
      if (stage.host && !run_host(*stage.host)) {
        break;
      }
    }
    finish_run(program_, walk_, slots_, results_, keeps_graph_, first_eager_);
    return std::move(results_);
  }

 private:
  void run_graph(const BackwardStage& stage) {
    if (stage.graph == nullptr) {
      return;
    }
    // The order of the graph's inputs: see BackwardTracer::drop_unused_inputs.
    torch::jit::Stack stack;
    stack.reserve(stage.sizes.size() + stage.saved.size() + stage.taken.size());
    for (const size_t symbol : stage.sizes) {
      stack.emplace_back(symbols_[symbol]);
    }
    for (const size_t tensor : stage.saved) {
      stack.emplace_back(walk_.tensors()[tensor]);
    }
    for (const size_t slot : stage.taken) {
      stack.emplace_back(slots_[slot]);
    }
    stage.graph->run(stack);
    // The user's compiler may have returned a function that does not do what the graph does.
    TORCH_CHECK(stack.size() == stage.given.size(), "a compiled backward returned ", stack.size(), " values, and its graph ",
                stage.given.size());
    for (size_t i = 0; i < stack.size(); ++i) {
      slots_[stage.given[i]] = std::move(stack[i]).toTensor();
    }
  }

  variable_list tensors_of(const Slots& slots) const {
    variable_list tensors;
    for (const Slot& slot : slots) {
      tensors.push_back(slot ? slots_[*slot] : at::Tensor());
    }
    return tensors;
  }

  // Returns false if the run has been completed, because the code did not act as when it was recorded.
  bool run_host(const HostCall& host) {
    torch::autograd::Node& node = *walk_.calls()[host.call].node;
    variable_list results = run_host_action(host.code, node, tensors_of(host.given), tensors_of(host.before), keeps_graph_);
    if (is_expected(host, trace_key_parts(results))) {
      for (size_t i = 0; i < results.size(); ++i) {
        if (host.results[i]) {
          slots_[*host.results[i]] = std::move(results[i]);
        }
      }
      return true;
    }
    finish_eagerly(host, std::move(results));
    return false;
  }

  // Returns whether the later graphs can take the results. They assume dtypes, devices and sizes as when they were recorded,
  // and that the same results are undefined.
  bool is_expected(const HostCall& host, const TraceKeyParts& outcome) const {
    const auto is_size = [this](int64_t size, const Dim& expected) {
      return expected.is_unknown() ||
             (expected.is_known() ? size == expected.value() : size == program_.symbols->evaluate(expected, symbols_));
    };
    return outcome.structure == host.outcome && outcome.sizes.size() == host.outcome_sizes.size() &&
           std::equal(outcome.sizes.begin(), outcome.sizes.end(), host.outcome_sizes.begin(), is_size);
  }

  // ---- as the engine runs it ----------------------------------------------------------------------------------------

  void finish_eagerly(const HostCall& host, variable_list results) {
    for (const WaitingGradients& waiting : host.waiting) {
      incoming_[walk_.calls()[waiting.call].node.get()] = tensors_of(waiting.slots);
    }
    const BackwardCall& call = walk_.calls()[host.call];
    // The rest of the call itself. Slots have what it captures, unless the code was its tensor hooks, which come before.
    switch (host.code) {
      case HostAction::kTensorHooks: capture(call, results); break;
      case HostAction::kHooksBefore: run_node(call, std::move(results)); break;
      case HostAction::kNode: run_after(call, std::move(results), tensors_of(host.given)); break;
      case HostAction::kHooksAfter: pass_on(*call.node, results); break;
      case HostAction::kLeaf: break;
    }
    first_eager_ = host.call + 1;
    for (size_t i = first_eager_; i < walk_.calls().size(); ++i) {
      run_eagerly(walk_.calls()[i]);
    }
  }

  void run_eagerly(const BackwardCall& call) {
    // The order of Engine::evaluate_function, as in BackwardTracer::run.
    variable_list gradients = std::move(incoming_[call.node.get()]);
    gradients.resize(call.node->num_inputs());
    if (!call.is_needed) {
      gradients = call_tensor_hooks(*call.node, std::move(gradients));
    }
    capture(call, gradients);
    if (call.is_needed && call.is_leaf) {
      run_leaf(*call.node, std::move(gradients));
    } else if (call.is_needed) {
      run_node(call, call_hooks_before(*call.node, std::move(gradients)));
    }
  }

  void run_node(const BackwardCall& call, variable_list gradients) {
    const variable_list given = gradients;
    run_after(call, call_node(*call.node, std::move(gradients), keeps_graph_), given);
  }

  void run_after(const BackwardCall& call, variable_list results, const variable_list& given) {
    pass_on(*call.node, call_hooks_after(*call.node, std::move(results), given));
  }

  void capture(const BackwardCall& call, const variable_list& gradients) {
    for (const BackwardCall::Capture& wanted : call.captures) {
      results_[static_cast<size_t>(wanted.output)] = gradients[static_cast<size_t>(wanted.input)];
    }
  }

  void pass_on(const torch::autograd::Node& node, const variable_list& results) {
    for (size_t i = 0; i < results.size(); ++i) {
      const torch::autograd::Edge& edge = node.next_edge(i);
      if (!edge.is_valid() || !results[i].defined()) {
        continue;
      }
      // A node that is not run gets gradients, too. Nothing reads them.
      variable_list& gradients = incoming_[edge.function.get()];
      gradients.resize(edge.function->num_inputs());
      at::Tensor& sum = gradients[edge.input_nr];
      sum = sum_of_gradients(sum, results[i]);
    }
  }

  const BackwardProgram& program_;
  const BackwardSchedule& walk_;
  const std::vector<int64_t>& symbols_;
  const bool keeps_graph_;
  variable_list slots_;
  variable_list results_;
  std::unordered_map<torch::autograd::Node*, variable_list> incoming_;
  size_t first_eager_ = SIZE_MAX;
};

}  // namespace

void finish_run(const BackwardProgram& program, const BackwardSchedule& walk, variable_list& slots, variable_list& results,
                bool keeps_graph, size_t first_eager) {
  // Plans ran in place of recorded nodes, which still hold what they saved. A second backward has to raise LibTorch's error.
  for (const BackwardCall& call : walk.calls()) {
    if (!keeps_graph && call.is_needed && !call.is_leaf) {
      call.node->release_variables();
    }
  }
  // A slot is undefined if the run ended before the stage that fills it. What calls have given in place of later stages
  // stays: a slot may have a part of such a gradient, to which nothing was added when the program was recorded.
  for (const GradientTarget& target : program.targets) {
    if (!target.is_leaf && slots[target.slot].defined() && !results[target.index].defined()) {
      results[target.index] = slots[target.slot];
    }
  }
  for (const GradientTarget& target : program.targets) {
    if (target.is_leaf && slots[target.slot].defined() && target.index < first_eager) {
      // An initializer list would copy the tensor and hold it, too, so that the leaf would copy its elements.
      variable_list gradients;
      gradients.push_back(take(program, target.slot, slots));
      run_leaf(*walk.calls()[target.index].node, std::move(gradients));
    }
  }
}

variable_list run_host_action(HostAction code, torch::autograd::Node& node, variable_list given, const variable_list& before,
                              bool keeps_graph) {
  switch (code) {
    case HostAction::kTensorHooks: return call_tensor_hooks(node, std::move(given));
    case HostAction::kHooksBefore: return call_hooks_before(node, std::move(given));
    case HostAction::kNode: return call_node(node, std::move(given), keeps_graph);
    case HostAction::kHooksAfter: return call_hooks_after(node, std::move(given), before);
    case HostAction::kLeaf: run_leaf(node, std::move(given)); return {};
  }
  SCONCE_ASSERT(false, "unknown host code");
}

variable_list run(const BackwardProgram& program, const BackwardSchedule& walk, const std::vector<int64_t>& symbols,
                  size_t results, bool keeps_graph) {
  return Run(program, walk, symbols, results, keeps_graph).run();
}

}  // namespace sconce
