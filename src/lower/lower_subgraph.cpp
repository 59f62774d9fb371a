#include "lower/lower_subgraph.h"

#include "analysis/effects.h"
#include "analysis/gradient_paths.h"
#include "analysis/memory/alias_sets.h"
#include "analysis/memory/escapes.h"
#include "analysis/memory/memory_source.h"
#include "analysis/node_devices.h"
#include "ir/captured.h"
#include "ir/constant_operands.h"
#include "ir/delegate.h"
#include "ir/differentiable.h"
#include "ir/kernel_node.h"
#include "passes/required/eliminate_dead_nodes.h"
#include "passes/simplify/simplify.h"
#include "plan/autograd/differentiable_function.h"
#include "plan/captured/captured_step.h"
#include "plan/run_plan.h"

#include <algorithm>
#include <string>
#include <unordered_set>
#include <utility>

namespace sconce {
namespace {

// Returns "SconceBackward(model.py:12)".
std::string autograd_name(const Node& node) {
  std::string frames = stack_frames(node.location());
  const size_t first = frames.find("File \"");
  if (first == std::string::npos) {
    return "SconceBackward";
  }
  const size_t begin = first + 6;
  const size_t end = frames.find('"', begin);
  const size_t line = frames.find("line ", end);
  const std::string file = frames.substr(begin, end - begin);
  const size_t digits = line + 5;
  return "SconceBackward(" + file.substr(file.rfind('/') + 1) + ":" +
         frames.substr(digits, frames.find_first_not_of("0123456789", digits) - digits) + ")";
}

std::function<void(torch::jit::Stack&)> run_of(std::shared_ptr<const Plan> plan) {
  return [plan = std::move(plan)](torch::jit::Stack& stack) {
    run_plan(*plan, stack, c10::GradMode::is_enabled() ? AutogradUse::kAll : AutogradUse::kNone);
  };
}

// Makes the plans of backward for the forms of runs that have none yet.
class BackwardLowering {
 public:
  // `general`: see ir/differentiable.h, with `intermediates` differentiable intermediates and `saved` saved inputs and
  // outputs. `name`: of backward.
  BackwardLowering(std::shared_ptr<const Graph> general, size_t intermediates, size_t saved, std::string name,
                   LoweringOptions options)
      : general_(std::move(general)),
        intermediates_(intermediates),
        saved_(saved),
        name_(std::move(name)),
        options_(std::move(options)) {}

  BackwardPlan operator()(const BackwardForm& form) const {
    std::shared_ptr<Graph> graph = specialize_backward(*general_, intermediates_, form);
    BackwardPlan made;
    made.saved_paths =
        gradient_paths(*graph, form.gradients.size() + (form.records ? intermediates_ : 0), graph->outputs().size(), saved_);
    if (!form.records && options_.optimize_backward != nullptr) {
      (*options_.optimize_backward)(graph);
    } else {
      simplify(*graph);
      eliminate_dead_nodes(*graph);
    }
    auto plan = lower(std::move(graph), nullptr, nullptr, options_);
    TORCH_CHECK(plan, "backward of these gradients cannot run: ", plan ? std::string() : plan.refusal().reason);
    (*plan)->set_name(form.records ? name_of_double_backward(name_) : name_);
    made.run = run_of(std::move(*plan));
    return made;
  }

 private:
  std::shared_ptr<const Graph> general_;
  size_t intermediates_;
  size_t saved_;
  std::string name_;
  LoweringOptions options_;
};

// Returns the values that may have a gradient: those computed from the inputs at `positions`, and all that blocks compute.
std::unordered_set<const Value*> values_with_gradient(const Graph& graph, const std::vector<size_t>& positions) {
  std::unordered_set<const Value*> values;
  for (const size_t position : positions) {
    values.insert(graph.inputs()[position]);
  }
  for_each_node(graph.body(), [&](const Node* node) {
    const bool has_blocks = !node->blocks().empty() && node->opcode() != Opcode::kKernel;
    if (has_blocks || std::ranges::any_of(node->inputs(), [&](const Value* operand) {
          return values.contains(&computed_value(*operand));
        })) {
      values.insert(node->outputs().begin(), node->outputs().end());
    }
    for (const Block* block : node->blocks()) {
      values.insert(block->params().begin(), block->params().end());
    }
  });
  return values;
}

// Returns whether the graph writes the input, and only before a node that is differentiated reads it. Other nodes save
// nothing for backward.
bool is_written_before_it_is_saved(const Graph& graph, const Value& input,
                                   const std::unordered_set<const Value*>& have_gradient) {
  const auto has_gradient = [&](const Value* value) { return have_gradient.contains(&computed_value(*value)); };
  bool may_be_saved = false;
  bool is_written = false;
  for_each_node(graph.body(), [&](const Node* node) {
    for (size_t i = 0; node->blocks().empty() && i < node->inputs().size(); ++i) {
      if (&base_of_memory(*node->input(i)) != &input) {
        continue;
      }
      is_written = may_write_operand(*node, i) ? !may_be_saved : is_written;
      // A batch norm saves the statistics that it has written.
      may_be_saved = may_be_saved || std::ranges::any_of(node->inputs(), has_gradient);
    }
  });
  return is_written;
}

Expected<std::shared_ptr<const DifferentiableFunction>> lower_differentiable(const Node& node, LoweringOptions options) {
  auto function = std::make_shared<DifferentiableFunction>();
  function->name = autograd_name(node);
  const auto graph_at = [&](c10::Symbol name) { return node.attribute_as<std::shared_ptr<Graph>>(name); };
  options.limits.packs_weights = false;  // training changes weights, through `data()` in LibTorch's optimizers
  options.fresh_outputs = node.outputs().size();
  auto forward = lower(graph_at(attr::kSubgraph), nullptr, nullptr, options);
  // Autograd takes a gradient as it is, without a copy, if nothing else holds it. It gives the outputs edges.
  options.fresh_outputs.reset();
  auto backward = lower(graph_at(attr::kBackward), nullptr, nullptr, options);
  if (!forward || !backward) {
    return forward ? backward.refusal() : forward.refusal();
  }
  function->forward = std::move(*forward);
  function->forward->set_name(function->name + " forward");
  const std::string backward_name = name_of_backward(function->name);
  (*backward)->set_name(backward_name);
  function->signature = gradient_signature(node);
  const GradientSignature& signature = function->signature;
  function->all_defined = std::move(*backward);
  BackwardPlan all_defined{run_of(function->all_defined), {}};
  for (const auto* saved : {&signature.saved_inputs, &signature.saved_outputs}) {
    std::transform(saved->begin(), saved->end(), std::back_inserter(all_defined.saved_paths),
                   [](const GradientSignature::Saved& each) { return each.paths; });
  }
  const size_t saved = all_defined.saved_paths.size();
  function->backward =
      std::make_unique<BackwardPlans>(std::move(all_defined), BackwardLowering(graph_at(attr::kGeneralBackward),
                                                                               signature.differentiable_intermediates.size(),
                                                                               saved, backward_name, options));
  function->shares = {{true}};
  if (const size_t outputs = signature.outputs.size(); outputs > 1) {
    const BackwardForm all{std::vector<Definedness>(outputs, Definedness::kAll)};
    function->shares = gradients_that_share(
        *specialize_backward(*graph_at(attr::kGeneralBackward), signature.differentiable_intermediates.size(), all),
        outputs);
  }
  function->outputs = node.outputs().size();
  const Graph& subgraph = *graph_at(attr::kSubgraph);
  const std::unordered_set<const Value*> have_gradient = values_with_gradient(subgraph, signature.inputs);
  for (size_t i = 0; i < signature.saved_inputs.size(); ++i) {
    if (is_written_before_it_is_saved(subgraph, *subgraph.inputs()[signature.saved_inputs[i].position], have_gradient)) {
      function->written_inputs.push_back(i);
    }
  }
  for (const GradientSignature::Output& each : signature.outputs) {
    const Value& output = *subgraph.outputs()[each.position];
    function->is_list.push_back(!is_tensor(output));
    function->returns_of_blocks =
        function->returns_of_blocks || !is_tensor(output) || !computed_value(output).node()->blocks().empty();
  }
  return std::shared_ptr<const DifferentiableFunction>(std::move(function));
}

// Returns whether only kernels use the number.
bool is_kernel_number(const Value& number) {
  return number.type()->kind() == c10::TypeKind::FloatType && std::ranges::all_of(number.uses(), [](const Use& use) {
           const Node* around = use.user->owning_block()->owner();
           return around != nullptr && around->opcode() == Opcode::kKernel;
         });
}

Expected<CapturedNode> lower_captured(const Node& node, LoweringOptions options) {
  const auto& subgraph = node.attribute_as<std::shared_ptr<Graph>>(attr::kSubgraph);
  options.fresh_outputs.reset();
  auto operators = lower(subgraph, nullptr, nullptr, options);
  if (!operators) {
    return operators.refusal();
  }
  CapturedNode captured{.operators = std::move(*operators), .device = main_device_of(*subgraph)};
  captured.draws = node.attribute(attr::kDraws) != nullptr;
  const AliasSets aliases(*subgraph);
  for (const Value* input : subgraph->inputs()) {
    captured.may_be_written.push_back(aliases.may_be_written(*input));
    captured.is_kernel_number.push_back(is_kernel_number(*input));
  }
  for (const Value* output : node.outputs()) {
    captured.stays.push_back(is_tensor(*output) && !may_escape(*output));
  }
  captured.may_return_views = std::ranges::any_of(subgraph->outputs(), [](const Value* output) {
    const Node& maker = *computed_value(*output).node();
    return is_tensor(*output) && !produces_new_tensor(maker);
  });
  return captured;
}

}  // namespace

Expected<StepPtr> lower_subgraph(const Node& node, Operands operands, Registers results, const LoweringOptions& options) {
  if (node.opcode() == Opcode::kDelegate) {
    auto subgraph = lower(node.attribute_as<std::shared_ptr<Graph>>(attr::kSubgraph));
    return subgraph ? make_delegate_step(node, std::move(operands), std::move(results), std::move(*subgraph))
                    : Expected<StepPtr>(subgraph.refusal());
  }
  if (node.opcode() == Opcode::kCaptured) {
    auto captured = lower_captured(node, options);
    return captured ? make_captured_step(node, std::move(operands), std::move(results), std::move(*captured))
                    : Expected<StepPtr>(captured.refusal());
  }
  auto function = lower_differentiable(node, options);
  return function ? make_differentiable_step(node, std::move(operands), std::move(results), std::move(*function))
                  : Expected<StepPtr>(function.refusal());
}

}  // namespace sconce
