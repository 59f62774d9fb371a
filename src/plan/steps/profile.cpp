#include "plan/profile.h"
#include "plan/steps/steps.h"

#include <utility>

namespace sconce {
namespace {

// Above or below autograd like the step before it, because observing changes nothing.
class ProfileValuesStep final : public Step {
 public:
  ProfileValuesStep(Profile& profile, std::vector<std::pair<const Value*, Register>> values)
      : Step(true), profile_(profile), values_(std::move(values)) {}
  void run(Frame& frame) const override {
    for (const auto& [value, place] : values_) {
      profile_.add_value(*value, frame[place]);
    }
  }
  std::string describe() const override { return "profile values"; }

 private:
  Profile& profile_;
  std::vector<std::pair<const Value*, Register>> values_;
};

template <typename Count>
class ProfileCountStep final : public Step {
 public:
  ProfileCountStep(std::string what, Count count) : Step(true), what_(std::move(what)), count_(std::move(count)) {}
  void run(Frame& /*frame*/) const override { count_(); }
  std::string describe() const override { return "profile " + what_; }

 private:
  std::string what_;
  Count count_;
};

template <typename Count>
StepPtr count_step(std::string what, Count count) {
  return std::make_unique<ProfileCountStep<Count>>(std::move(what), std::move(count));
}

}  // namespace

StepPtr make_profile_values_step(Profile& profile, std::vector<std::pair<const Value*, Register>> values) {
  return std::make_unique<ProfileValuesStep>(profile, std::move(values));
}
StepPtr make_profile_run_step(Profile& profile) {
  return count_step("run", [&profile] { profile.add_run(); });
}
StepPtr make_profile_branch_step(Profile& profile, const Node& branch, bool taken) {
  return count_step("branch", [&profile, &branch, taken] { profile.add_branch(branch, taken); });
}
StepPtr make_profile_loop_step(Profile& profile, const Node& loop) {
  return count_step("loop", [&profile, &loop] { profile.add_loop(loop); });
}
StepPtr make_profile_iteration_step(Profile& profile, const Node& loop) {
  return count_step("iteration", [&profile, &loop] { profile.add_iteration(loop); });
}

}  // namespace sconce
