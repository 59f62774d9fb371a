#include "training/update_plan.h"

#include "executor/compile.h"
#include "load/compile_op_row.h"
#include "lower/explain_plan.h"
#include "plan/run_plan.h"

#include <string>
#include <string_view>

namespace sconce {
namespace {

// Returns the loop over all parameters as a TorchScript function:
//
//   def step(param_list: List[Tensor], grad_list: List[Tensor], exp_avg_list: List[Tensor], …, beta1: float, …):
//       for i in range(len(param_list)):
//           param = param_list[i]
//           …
//           exp_avg.mul_(beta1).add_(grad, alpha=rest1)
std::string loop_over_parameters(const Update& update) {
  std::string declared;
  std::string loop = "    for i in range(len(param_list)):\n";
  const auto add_list = [&](const std::string& name, const char* type) {
    declared += (declared.empty() ? "" : ", ") + name + "_list: List[" + type + "]";
    loop += "        " + name + " = " + name + "_list[i]\n";
  };
  add_list("param", "Tensor");
  add_list("grad", "Tensor");
  for (const char* name : update.states) {
    add_list(name, "Tensor");
  }
  for (const char* name : update.step_numbers) {
    add_list(name, "float");
  }
  for (const char* name : update.numbers) {
    declared += std::string(", ") + name + ": float";
  }
  for (std::string_view rest = update.body; !rest.empty();) {
    const size_t end = rest.find('\n') + 1;
    loop.append("        ").append(rest.substr(0, end));
    rest.remove_prefix(end);
  }
  return "def step(" + declared + "):\n" + loop;
}

}  // namespace

UpdatePlan::UpdatePlan(const UpdateRule& rule, unsigned variant, const Options& options) : update_(rule.update(variant)) {
  // A c10::List is a reference: each list is made by itself.
  for (size_t i = 0; i < update_.states.size(); ++i) {
    states_.emplace_back();
  }
  for (size_t i = 0; i < update_.step_numbers.size(); ++i) {
    step_numbers_.emplace_back();
  }
  CompileSettings settings(options);
  settings.name = std::string("step of ") + rule.name();
  // Kernels would be made for each parameter, and refused.
  if (options.exact() && kernels_round_otherwise(update_)) {
    settings.compile = CompileMode::kNever;
    settings.prepares_steps = false;
  }
  CompiledMethod compiled = compile_method(compile_function(settings.name, loop_over_parameters(update_)), settings)
                                .value_or_throw("sconce cannot capture the " + settings.name);
  compiled_.method = settings.name;
  compiled_.nodes = compiled.graph->node_count();
  compiled_.passes = std::move(compiled.passes);
  compiled_.refusals = std::move(compiled.refusals);
  compiled_.counters.compiles = 1;
  compiled_.counters.refusals = compiled_.refusals.size();
  compile_seconds_ = compiled.seconds;
  plan_ = std::move(compiled.plan);
}

void UpdatePlan::add(const at::Tensor& param, const at::Tensor& grad, const UpdateRule::StateTensors& states,
                     const UpdateRule::StepNumbers& numbers) {
  params_.push_back(param);
  grads_.push_back(grad);
  for (size_t i = 0; i < states_.size(); ++i) {
    states_[i].push_back(*states[i]);
  }
  for (size_t i = 0; i < step_numbers_.size(); ++i) {
    step_numbers_[i].push_back(numbers.values[i]);
  }
}

void UpdatePlan::run(const std::vector<double>& numbers) {
  ++compiled_.counters.invocations;
  stack_.emplace_back(params_);
  stack_.emplace_back(grads_);
  stack_.insert(stack_.end(), states_.begin(), states_.end());
  stack_.insert(stack_.end(), step_numbers_.begin(), step_numbers_.end());
  stack_.insert(stack_.end(), numbers.begin(), numbers.end());
  run_plan(*plan_, stack_, AutogradUse::kNone);
}

void UpdatePlan::clear() {
  params_.clear();
  grads_.clear();
  for (c10::List<at::Tensor>& tensors : states_) {
    tensors.clear();
  }
  for (c10::List<double>& numbers : step_numbers_) {
    numbers.clear();
  }
  stack_.clear();
}

Explanation UpdatePlan::explain() const {
  Explanation explanation = compiled_;
  PlanExplanation& plan = explanation.plans.emplace_back();
  plan.runs = compiled_.counters.invocations;
  plan.compile_seconds = compile_seconds_;
  explain_plan(*plan_, plan);
  return explanation;
}

}  // namespace sconce
