#include "plan/gradients/differentiable_function.h"

#include "ir/constant_operands.h"
#include "ir/differentiable.h"
#include "plan/lower.h"

#include <tuple>
#include <utility>

namespace sconce {
namespace {

using PositionList = std::vector<int64_t>;

constexpr std::string_view kBackwardSuffix = " backward";
constexpr std::string_view kRecordedSuffix = " backward of backward";

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

}  // namespace

bool is_backward_plan(std::string_view name) { return name.ends_with(kBackwardSuffix) || name.ends_with(kRecordedSuffix); }

Expected<std::shared_ptr<const DifferentiableFunction>> make_differentiable_function(const Node& node, StepForm form) {
  auto function = std::make_shared<DifferentiableFunction>();
  function->name = autograd_name(node);
  const std::tuple<c10::Symbol, std::string_view, std::unique_ptr<Plan>*> plans[] = {
      {attr::kSubgraph, " forward", &function->forward},
      {attr::kBackward, kBackwardSuffix, &function->backward},
      {attr::kRecordedBackward, kRecordedSuffix, &function->recorded_backward}};
  for (const auto& [attribute, suffix, plan] : plans) {
    // Autograd takes a gradient as it is, without a copy, if nothing else holds it. It gives the outputs edges.
    form.always_new = attribute == attr::kSubgraph ? std::optional(node.outputs().size()) : std::nullopt;
    auto lowered = lower(node.attribute_as<std::shared_ptr<Graph>>(attribute), nullptr, nullptr, form);
    if (!lowered) {
      return lowered.refusal();
    }
    *plan = std::move(*lowered);
    (*plan)->set_name(function->name + std::string(suffix));
  }
  function->outputs = node.outputs().size();
  function->differentiable_inputs = node.attribute_as<PositionList>(attr::kDifferentiableInputs);
  function->differentiable_outputs = node.attribute_as<PositionList>(attr::kDifferentiableOutputs);
  function->captured_inputs = node.attribute_as<PositionList>(attr::kCapturedInputs);
  function->captured_outputs = node.attribute_as<PositionList>(attr::kCapturedOutputs);
  function->differentiable_temporaries = node.attribute_as<PositionList>(attr::kDifferentiableTemporaries);
  function->capture_paths = node.attribute_as<PositionList>(attr::kCapturePaths);
  if (node.attribute(attr::kConditionalOutputs) != nullptr) {
    function->conditional_outputs = node.attribute_as<PositionList>(attr::kConditionalOutputs);
    function->other_dependences = node.attribute_as<PositionList>(attr::kOtherDependences);
  }
  function->dependences = node.attribute_as<PositionList>(attr::kDependences);
  const Graph& forward = *node.attribute_as<std::shared_ptr<Graph>>(attr::kSubgraph);
  for (const int64_t position : function->differentiable_outputs) {
    const Value& output = *forward.outputs()[static_cast<size_t>(position)];
    function->is_list.push_back(!is_tensor(output));
    function->returns_of_blocks = function->returns_of_blocks || !is_tensor(output) || !output.node()->blocks().empty();
  }
  return std::shared_ptr<const DifferentiableFunction>(std::move(function));
}

}  // namespace sconce
