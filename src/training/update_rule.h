// UpdateRule: how one class of LibTorch's optimizers updates a parameter.
#pragma once

#include <ATen/core/Tensor.h>
#include <torch/optim/optimizer.h>

#include <array>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

namespace sconce {

// The update of one parameter, as statements of TorchScript: those of the optimizer's own step. They may use `param`, `grad`
// and the names below, each of which is a variable, and write `param` and the states in place.
struct Update {
  std::vector<const char*> states;        // tensors of the parameter's state, at most UpdateRule::kMaxStates
  std::vector<const char*> step_numbers;  // numbers that depend on how many steps the parameter has made
  std::vector<const char*> numbers;       // numbers of the parameter group
  std::string body;
};

// Returns whether kernels round the update otherwise than LibTorch: they round square roots in another way.
bool kernels_round_otherwise(const Update& update);

// `options` are those of a parameter group of such an optimizer, `variant` is what `variant(options)` returns, and a state
// is that of a parameter of the group.
class UpdateRule {
 public:
  using Options = torch::optim::OptimizerOptions;
  using State = torch::optim::OptimizerParamState;
  static constexpr size_t kMaxStates = 3;
  using StateTensors = std::array<const at::Tensor*, kMaxStates>;

  // `counts_versions`: whether the optimizer's step counts as a write of the parameter.
  // `makes_states`: whether the optimizer's step makes the states that are missing.
  UpdateRule(const char* name, bool counts_versions, bool makes_states = true)
      : name_(name), counts_versions_(counts_versions), makes_states_(makes_states) {}
  virtual ~UpdateRule() = default;

  const char* name() const { return name_; }
  bool counts_versions() const { return counts_versions_; }
  // Lets packed copies of the parameter be compared with it, after a step that did not count as a write.
  void note_step(const at::Tensor& param) const;
  bool makes_states() const { return makes_states_; }

  // Returns what decides the update's text: flags, and which numbers are zero.
  virtual unsigned variant(const Options& options) const = 0;
  virtual Update update(unsigned variant) const = 0;
  // Returns Update::numbers.
  virtual std::vector<double> numbers(const Options& options) const = 0;

  // Returns whether parameters have states.
  virtual bool has_state(unsigned variant) const = 0;
  // Returns the state of a parameter before its first step. Requires makes_states(). Reads only the form of `grad`.
  virtual std::unique_ptr<State> make_state(const Options& options, const at::Tensor& param,
                                            const at::Tensor& grad) const = 0;
  // Returns Update::states.
  virtual StateTensors tensors_of(const State& state, unsigned variant) const = 0;

  // Update::step_numbers in a step.
  struct StepNumbers {
    int64_t step = -1;
    std::array<double, 2> values{};
  };
  // Sets the numbers of the parameter's next step. Those given are of another parameter of the group. `is_first`: its state
  // is new.
  virtual void step_numbers(const State& state, bool is_first, const Options& options, StepNumbers& numbers) const = 0;
  // Counts a step of the parameter.
  virtual void count_step(State& state) const = 0;

 private:
  const char* name_;
  bool counts_versions_;
  bool makes_states_;
};

// Returns null for an optimizer of another class than those that have a rule.
const UpdateRule* find_update_rule(const torch::optim::Optimizer& optimizer);

// Returns the state of a parameter; null before its first step.
UpdateRule::State* find_state(torch::optim::Optimizer& optimizer, const at::Tensor& param);
// Returns why no plan can update the parameter; null if one can.
const char* why_no_plan(const at::Tensor& param, const at::Tensor& grad);
// The same because of a tensor of its state.
const char* why_no_plan_for_state(const at::Tensor& tensor, const at::Tensor& param);

}  // namespace sconce
