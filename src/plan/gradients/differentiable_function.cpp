#include "plan/gradients/differentiable_function.h"

#include "analysis/gradient_paths.h"
#include "ir/constant_operands.h"
#include "ir/differentiable.h"
#include "passes/required/eliminate_dead_nodes.h"
#include "passes/simplify/simplify.h"

#include <algorithm>
#include <utility>

namespace sconce {
namespace {

using PositionList = std::vector<int64_t>;

constexpr std::string_view kBackwardSuffix = " backward";
constexpr std::string_view kOfBackwardSuffix = " of backward";

// "SconceBackward(model.py:12)"
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

constexpr size_t kMaxForms = 16;

bool is_defined(Definedness gradient) { return gradient == Definedness::kAll; }

}  // namespace

BackwardPlans::BackwardPlans(BackwardPlan all_defined, std::shared_ptr<const Graph> general, size_t temporaries,
                             size_t captures, StepForm form)
    : all_defined_(std::move(all_defined)),
      general_(std::move(general)),
      temporaries_(temporaries),
      captures_(captures),
      form_(form) {}

const BackwardPlan& BackwardPlans::at(const BackwardForm& form) const {
  if (!form.records && std::all_of(form.gradients.begin(), form.gradients.end(), is_defined)) {
    return all_defined_;
  }
  const std::lock_guard<std::mutex> lock(mutex_);
  const auto find = [this](const BackwardForm& wanted) {
    return std::find_if(others_.begin(), others_.end(), [&](const auto& each) { return each.first == wanted; });
  };
  if (const auto found = find(form); found != others_.end()) {
    return *found->second;
  }
  if (others_.size() < kMaxForms) {
    return add(form);
  }
  // One plan for each of the two kinds serves all other forms: it asks in the run which gradients are defined.
  const BackwardForm any{std::vector<Definedness>(form.gradients.size(), Definedness::kSome), form.records};
  const auto found = find(any);
  return found != others_.end() ? *found->second : add(any);
}

const BackwardPlan& BackwardPlans::add(const BackwardForm& form) const {
  std::shared_ptr<Graph> graph = specialize_backward(*general_, temporaries_, form);
  auto made = std::make_unique<BackwardPlan>();
  made->capture_paths = gradient_paths(*graph, form.gradients.size() + (form.records ? temporaries_ : 0), captures_);
  if (!form.records && form_.optimize_backward != nullptr) {
    (*form_.optimize_backward)(graph);
  } else {
    simplify(*graph);
    eliminate_dead_nodes(*graph);
  }
  auto plan = lower(std::move(graph), nullptr, nullptr, form_);
  TORCH_CHECK(plan, "backward of these gradients cannot run: ", plan ? std::string() : plan.refusal().reason);
  (*plan)->set_name(all_defined().name() + std::string(form.records ? kOfBackwardSuffix : std::string_view()));
  made->plan = std::move(*plan);
  return *others_.emplace_back(form, std::move(made)).second;
}

bool is_backward_plan(std::string_view name) { return name.ends_with(kBackwardSuffix) || name.ends_with(kOfBackwardSuffix); }

Expected<std::shared_ptr<const DifferentiableFunction>> make_differentiable_function(const Node& node, StepForm form) {
  auto function = std::make_shared<DifferentiableFunction>();
  function->name = autograd_name(node);
  const auto graph_at = [&](c10::Symbol name) { return node.attribute_as<std::shared_ptr<Graph>>(name); };
  form.always_new = node.outputs().size();
  auto forward = lower(graph_at(attr::kSubgraph), nullptr, nullptr, form);
  // Autograd takes a gradient as it is, without a copy, if nothing else holds it. It gives the outputs edges.
  form.always_new.reset();
  auto backward = lower(graph_at(attr::kBackward), nullptr, nullptr, form);
  if (!forward || !backward) {
    return forward ? backward.refusal() : forward.refusal();
  }
  function->forward = std::move(*forward);
  function->forward->set_name(function->name + " forward");
  (*backward)->set_name(function->name + std::string(kBackwardSuffix));
  function->differentiable_temporaries = node.attribute_as<PositionList>(attr::kDifferentiableTemporaries);
  function->captured_inputs = node.attribute_as<PositionList>(attr::kCapturedInputs);
  function->captured_outputs = node.attribute_as<PositionList>(attr::kCapturedOutputs);
  function->backward = std::make_unique<BackwardPlans>(
      BackwardPlan{std::move(*backward), node.attribute_as<PositionList>(attr::kCapturePaths)},
      graph_at(attr::kGeneralBackward), function->differentiable_temporaries.size(),
      function->captured_inputs.size() + function->captured_outputs.size(), form);
  function->outputs = node.outputs().size();
  function->differentiable_inputs = node.attribute_as<PositionList>(attr::kDifferentiableInputs);
  function->differentiable_outputs = node.attribute_as<PositionList>(attr::kDifferentiableOutputs);
  if (node.attribute(attr::kConditionalOutputs) != nullptr) {
    function->conditional_outputs = node.attribute_as<PositionList>(attr::kConditionalOutputs);
    function->other_dependences = node.attribute_as<PositionList>(attr::kOtherDependences);
  }
  function->dependences = node.attribute_as<PositionList>(attr::kDependences);
  const Graph& subgraph = *graph_at(attr::kSubgraph);
  for (const int64_t position : function->differentiable_outputs) {
    const Value& output = *subgraph.outputs()[static_cast<size_t>(position)];
    function->is_list.push_back(!is_tensor(output));
    function->returns_of_blocks =
        function->returns_of_blocks || !is_tensor(output) || !computed_value(output).node()->blocks().empty();
  }
  return std::shared_ptr<const DifferentiableFunction>(std::move(function));
}

}  // namespace sconce
