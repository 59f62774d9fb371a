#include "plan/autograd/differentiable_function.h"

#include <algorithm>
#include <utility>

namespace sconce {
namespace {

constexpr std::string_view kBackwardSuffix = " backward";
constexpr std::string_view kOfBackwardSuffix = " of backward";

constexpr size_t kMaxForms = 16;

bool is_defined(Definedness gradient) { return gradient == Definedness::kAll; }

}  // namespace

std::string name_of_backward(const std::string& function) { return function + std::string(kBackwardSuffix); }
std::string name_of_double_backward(const std::string& backward) { return backward + std::string(kOfBackwardSuffix); }
bool is_backward_plan(std::string_view name) { return name.ends_with(kBackwardSuffix) || name.ends_with(kOfBackwardSuffix); }

BackwardPlans::BackwardPlans(BackwardPlan all_defined, Make make)
    : all_defined_(std::move(all_defined)), make_(std::move(make)) {}

const BackwardPlan* BackwardPlans::at(const BackwardForm& form) const {
  const BackwardPlan& plan = plan_of(form);
  return plan.run != nullptr && (plan.is_ready == nullptr || plan.is_ready()) ? &plan : nullptr;
}

const BackwardPlan& BackwardPlans::plan_of(const BackwardForm& form) const {
  if (!form.records && std::all_of(form.gradients.begin(), form.gradients.end(), is_defined)) {
    return all_defined_;
  }
  BackwardForm wanted = form;
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    if (const BackwardPlan* found = find(wanted)) {
      return *found;
    }
    if (others_.size() >= kMaxForms) {
      // One plan for each of the two kinds serves all other forms of a slice: it asks in the run which gradients are
      // defined.
      wanted.gradients.assign(form.gradients.size(), Definedness::kSome);
      if (const BackwardPlan* found = find(wanted)) {
        return *found;
      }
    }
  }
  // Compiled outside of the lock. If two threads compile one form at the same time, the first plan is kept.
  auto made = std::make_unique<BackwardPlan>(make_(wanted));
  const std::lock_guard<std::mutex> lock(mutex_);
  const BackwardPlan* found = find(wanted);
  return found != nullptr ? *found : *others_.emplace_back(std::move(wanted), std::move(made)).second.get();
}

const BackwardPlan* BackwardPlans::find(const BackwardForm& form) const {
  const auto found = std::find_if(others_.begin(), others_.end(), [&](const auto& each) { return each.first == form; });
  return found == others_.end() ? nullptr : found->second.get();
}

}  // namespace sconce
