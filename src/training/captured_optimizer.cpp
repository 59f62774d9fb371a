#include <sconce/captured_optimizer.h>

#include "plan/step.h"
#include "training/update_plan.h"
#include "training/update_rule.h"

#include <c10/core/GradMode.h>
#include <c10/util/ScopeExit.h>
#include <c10/util/Type.h>
#include <torch/csrc/jit/frontend/tracer.h>

#include <algorithm>
#include <map>
#include <sstream>
#include <typeinfo>

namespace sconce {
namespace {

using torch::optim::Optimizer;
using torch::optim::OptimizerParamGroup;

}  // namespace

class CapturedOptimizer::Impl {
 public:
  Impl(Optimizer& optimizer, const Options& options)
      : borrowed_(&optimizer), options_(options), rule_(find_update_rule(optimizer)) {
    const auto& object = optimizer;
    explained_.optimizer = rule_ != nullptr ? rule_->name() : c10::demangle(typeid(object).name());
    if (rule_ == nullptr) {
      explained_.why_eager = "the update of this class is not known";
    }
  }
  Impl(const std::shared_ptr<Optimizer>& optimizer, const Options& options) : Impl(checked(optimizer), options) {
    borrowed_ = nullptr;
    held_ = optimizer;
  }

  at::Tensor step(const LossClosure& closure) {
    const std::shared_ptr<Optimizer> keep = held_.lock();
    Optimizer& optimizer = live(keep);
    ++explained_.steps;
    if (rule_ == nullptr) {
      count_eager(explained_.why_eager);
      return optimizer.step(closure);
    }
    at::Tensor loss;
    if (closure != nullptr) {
      const c10::AutoGradMode enable_grad(true);
      loss = closure();
    }
    if (const char* reason = run_captured(optimizer)) {
      count_eager(reason);
      optimizer.step();
    }
    return loss;
  }

  std::optional<std::string> try_step() {
    const std::shared_ptr<Optimizer> keep = held_.lock();
    Optimizer& optimizer = live(keep);
    const char* reason = rule_ == nullptr ? explained_.why_eager.c_str() : run_captured(optimizer);
    if (reason != nullptr) {
      return reason;
    }
    ++explained_.steps;
    return std::nullopt;
  }

  void zero_grad(bool set_to_none) {
    const std::shared_ptr<Optimizer> keep = held_.lock();
    live(keep).zero_grad(set_to_none);
  }

  OptimizerExplanation explain() const {
    OptimizerExplanation explanation = explained_;
    for (const auto& [variant, plan] : plans_) {
      explanation.plans.push_back(plan->explain());
    }
    return explanation;
  }

 private:
  // A parameter that a step updates.
  struct Updated {
    const at::Tensor* param;
    const at::Tensor* grad;
    UpdateRule::State* state;  // null before the first step
  };
  struct GroupUpdate {
    const UpdateRule::Options* options;
    unsigned variant;
    size_t first;  // of its parameters in updated_
    size_t count;
  };

  static Optimizer& checked(const std::shared_ptr<Optimizer>& optimizer) {
    TORCH_CHECK(optimizer != nullptr, "CapturedOptimizer: there is no optimizer");
    return *optimizer;
  }
  Optimizer& live(const std::shared_ptr<Optimizer>& keep) const {
    TORCH_CHECK(keep != nullptr || borrowed_ != nullptr, "CapturedOptimizer: the optimizer, ", explained_.optimizer,
                ", was destroyed");
    return keep != nullptr ? *keep : *borrowed_;
  }

  void count_eager(const std::string& reason) {
    auto& counts = explained_.eager_steps;
    auto found = std::find_if(counts.begin(), counts.end(), [&](const auto& each) { return each.reason == reason; });
    ++(found != counts.end() ? *found : counts.emplace_back(OptimizerExplanation::EagerSteps{reason})).steps;
  }

  // Runs the step by plans. Where it must be eager, changes nothing and returns why.
  const char* run_captured(Optimizer& optimizer) {
    const c10::NoGradGuard no_grad;
    if (const char* reason = collect(optimizer)) {
      return reason;
    }
    ++explained_.captured_steps;
    for (const GroupUpdate& update : groups_) {
      run(optimizer, update);
    }
    return nullptr;
  }

  // Finds what the step updates, and changes no state. Returns why the step must be eager; null if a plan serves it.
  const char* collect(Optimizer& optimizer) {
    groups_.clear();
    updated_.clear();
    if (transform_is_active() || torch::jit::tracer::isTracing()) {
      return "a transform is active";
    }
    for (OptimizerParamGroup& group : optimizer.param_groups()) {
      const unsigned variant = rule_->variant(group.options());
      const Update& update = plan_of(variant).update();
      const size_t first = updated_.size();
      for (const at::Tensor& param : group.params()) {
        const at::Tensor& grad = param.grad();
        if (!grad.defined()) {
          continue;
        }
        if (!param.is_cpu()) {
          return "a parameter is on another device than the CPU";
        }
        if (const char* reason = why_no_plan(param, grad)) {
          return reason;
        }
        UpdateRule::State* const state = rule_->has_state(variant) ? find_state(optimizer, param) : nullptr;
        if (state != nullptr) {
          const UpdateRule::StateTensors tensors = rule_->tensors_of(*state, variant);
          for (size_t i = 0; i < update.states.size(); ++i) {
            if (const char* reason = why_no_plan_for_state(*tensors[i], param)) {
              return reason;
            }
          }
        } else if (rule_->has_state(variant) && !rule_->makes_states()) {
          return "a parameter has no state";
        }
        updated_.push_back({&param, &grad, state});
      }
      groups_.push_back({&group.options(), variant, first, updated_.size() - first});
    }
    return nullptr;
  }

  UpdatePlan& plan_of(unsigned variant) {
    std::unique_ptr<UpdatePlan>& plan = plans_[variant];
    if (plan == nullptr) {
      plan = std::make_unique<UpdatePlan>(*rule_, variant, options_);
    }
    return *plan;
  }

  void run(Optimizer& optimizer, const GroupUpdate& group) {
    UpdatePlan& plan = plan_of(group.variant);
    const auto drop_arguments = c10::make_scope_exit([&] { plan.clear(); });
    const bool has_state = rule_->has_state(group.variant);
    UpdateRule::StepNumbers numbers;
    for (size_t i = group.first; i < group.first + group.count; ++i) {
      Updated& updated = updated_[i];
      bool is_first = false;
      if (has_state) {
        // A parameter may be in the group twice.
        updated.state = updated.state != nullptr ? updated.state : find_state(optimizer, *updated.param);
        is_first = updated.state == nullptr;
        if (is_first) {
          auto& place = optimizer.state()[updated.param->unsafeGetTensorImpl()];
          place = rule_->make_state(*group.options, *updated.param, *updated.grad);
          updated.state = place.get();
        }
        rule_->step_numbers(*updated.state, is_first, *group.options, numbers);
        rule_->count_step(*updated.state);
      }
      plan.add(rule_->counts_versions() ? *updated.param : updated.param->data(), *updated.grad,
               has_state ? rule_->tensors_of(*updated.state, group.variant) : UpdateRule::StateTensors{}, numbers);
    }
    plan.run(rule_->numbers(*group.options));
    for (size_t i = group.first; i < group.first + group.count; ++i) {
      rule_->note_step(*updated_[i].param);
    }
    explained_.captured_updates += group.count;
  }

  Optimizer* borrowed_;
  std::weak_ptr<Optimizer> held_;
  Options options_;
  const UpdateRule* rule_;
  std::map<unsigned, std::unique_ptr<UpdatePlan>> plans_;  // by variant
  std::vector<GroupUpdate> groups_;
  std::vector<Updated> updated_;
  OptimizerExplanation explained_;
};

CapturedOptimizer::CapturedOptimizer(Optimizer& optimizer, const Options& options)
    : impl_(std::make_unique<Impl>(optimizer, options)) {}
CapturedOptimizer::CapturedOptimizer(const std::shared_ptr<Optimizer>& optimizer, const Options& options)
    : impl_(std::make_unique<Impl>(optimizer, options)) {}
CapturedOptimizer::~CapturedOptimizer() = default;
CapturedOptimizer::CapturedOptimizer(CapturedOptimizer&&) noexcept = default;
CapturedOptimizer& CapturedOptimizer::operator=(CapturedOptimizer&&) noexcept = default;

std::optional<std::string> CapturedOptimizer::try_step() { return impl_->try_step(); }
at::Tensor CapturedOptimizer::step(const LossClosure& closure) { return impl_->step(closure); }
void CapturedOptimizer::zero_grad(bool set_to_none) { impl_->zero_grad(set_to_none); }
OptimizerExplanation CapturedOptimizer::explain() const { return impl_->explain(); }

std::string to_string(const OptimizerExplanation& explanation) {
  std::ostringstream text;
  text << explanation.optimizer << ": " << explanation.steps << " steps, " << explanation.captured_steps
       << " captured, with " << explanation.captured_updates << " updates of parameters\n";
  for (const OptimizerExplanation::EagerSteps& eager : explanation.eager_steps) {
    text << "  " << eager.steps << " eager: " << eager.reason << "\n";
  }
  for (const Explanation& each : explanation.plans) {
    for (const PlanExplanation& plan : each.plans) {
      text << "  plan: " << plan.runs << " runs, " << plan.groups << " kernels, " << plan.ordinary_steps
           << " ordinary steps\n";
    }
    for (const RefusalExplanation& refusal : each.refusals) {
      text << "  refused: " << refusal.what << ": " << refusal.reason << "\n";
    }
  }
  return text.str();
}

}  // namespace sconce
