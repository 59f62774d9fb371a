#include "training/step/step_update.h"

#include "base/flat_map.h"
#include "plan/step.h"

#include <ATen/core/jit_type.h>
#include <torch/csrc/jit/frontend/tracer.h>

#include <algorithm>
#include <utility>

namespace sconce {
namespace {

// Returns whether the memory of each of these tensors belongs to no other tensor of both.
bool own_their_memory(const std::vector<at::Tensor>& tensors, const std::vector<at::Tensor>& inputs) {
  FlatMap<const c10::StorageImpl*, size_t> users;
  FlatSet<const c10::TensorImpl*> seen;
  for (const auto* each : {&tensors, &inputs}) {
    for (const at::Tensor& tensor : *each) {
      if (tensor.defined() && tensor.has_storage() && seen.insert(tensor.unsafeGetTensorImpl()).second) {
        ++users[tensor.storage().unsafeGetStorageImpl()];
      }
    }
  }
  return std::ranges::all_of(
      tensors, [&](const at::Tensor& tensor) { return users.at(tensor.storage().unsafeGetStorageImpl()) == 1; });
}

}  // namespace

StepUpdate::StepUpdate(torch::optim::Optimizer& optimizer, const UpdateRule& rule, const TrainedParameters& trained,
                       const Clipping& clipping)
    : optimizer_(optimizer), rule_(rule), clipping_(clipping), groups_(trained.groups), variants_(variants()) {
  for (const unsigned variant : variants_) {
    updates_.push_back(rule.update(variant));
  }
}

std::unique_ptr<StepUpdate> StepUpdate::make(torch::optim::Optimizer& optimizer, const TrainedParameters& trained,
                                             const std::vector<at::Tensor>& inputs, const std::vector<at::Tensor>& gradients,
                                             const Clipping& clipping) {
  const UpdateRule* const rule = find_update_rule(optimizer);
  if (rule == nullptr) {
    return nullptr;
  }
  std::unique_ptr<StepUpdate> update(new StepUpdate(optimizer, *rule, trained, clipping));
  std::vector<at::Tensor> written;
  for (size_t i = 0; i < gradients.size(); ++i) {
    const at::Tensor& param = trained.tensors[i];
    if (!gradients[i].defined()) {
      continue;
    }
    const auto input = std::ranges::find_if(inputs, [&](const at::Tensor& tensor) { return tensor.is_same(param); });
    // New states, and the order in which a norm is summed, depend on strides, which are the parameter's if it is dense.
    if (input == inputs.end() || why_no_plan(param, gradients[i]) != nullptr || !param.is_non_overlapping_and_dense() ||
        (clipping.norm && gradients[i].strides() != param.strides())) {
      return nullptr;
    }
    update->updated_.push_back({param, trained.groups[i], static_cast<size_t>(input - inputs.begin())});
    written.push_back(param);
  }
  if (update->updated_.empty() || !update->begin(trained)) {
    return nullptr;
  }
  size_t state = 0;
  for (const Updated& each : update->updated_) {
    const size_t count = update->updates_[each.group].states.size();
    for (size_t i = 0; i < count; ++i, ++state) {
      if (why_no_plan_for_state(update->states_[state], each.param) != nullptr) {
        return nullptr;
      }
    }
  }
  written.insert(written.end(), update->states_.begin(), update->states_.end());
  return own_their_memory(written, inputs) ? std::move(update) : nullptr;
}

std::vector<unsigned> StepUpdate::variants() const {
  std::vector<unsigned> variants;
  for (const torch::optim::OptimizerParamGroup& group : optimizer_.param_groups()) {
    variants.push_back(rule_.variant(group.options()));
  }
  return variants;
}

bool StepUpdate::begin(const TrainedParameters& trained) {
  drop();
  if (trained.has_repeated || trained.groups != groups_ || variants() != variants_ || transform_is_active() ||
      torch::jit::tracer::isTracing()) {
    return false;
  }
  std::vector<const UpdateRule::Options*> options;
  for (const torch::optim::OptimizerParamGroup& group : optimizer_.param_groups()) {
    options.push_back(&group.options());
    const std::vector<double> numbers = rule_.numbers(group.options());
    numbers_.insert(numbers_.end(), numbers.begin(), numbers.end());
  }
  size_t group = groups_.size();
  UpdateRule::StepNumbers numbers;
  made_.resize(updated_.size());
  for (size_t i = 0; i < updated_.size(); ++i) {
    const Updated& updated = updated_[i];
    const unsigned variant = variants_[updated.group];
    if (!rule_.has_state(variant)) {
      continue;
    }
    const UpdateRule::State* state = find_state(optimizer_, updated.param);
    const bool is_first = state == nullptr;
    if (is_first) {
      if (!rule_.makes_states()) {
        return false;
      }
      made_[i] = rule_.make_state(*options[updated.group], updated.param, updated.param);
      state = made_[i].get();
    }
    const Update& update = updates_[updated.group];
    const UpdateRule::StateTensors tensors = rule_.tensors_of(*state, variant);
    for (size_t k = 0; k < update.states.size(); ++k) {
      states_.push_back(*tensors[k]);
    }
    if (std::exchange(group, updated.group) != updated.group) {
      numbers = {};
    }
    rule_.step_numbers(*state, is_first, *options[updated.group], numbers);
    numbers_.insert(numbers_.end(), numbers.values.begin(),
                    numbers.values.begin() + static_cast<std::ptrdiff_t>(update.step_numbers.size()));
  }
  return std::ranges::all_of(states_, [](const at::Tensor& state) { return state.defined(); });
}

void StepUpdate::end() {
  for (size_t i = 0; i < updated_.size(); ++i) {
    rule_.note_step(updated_[i].param);
    if (!rule_.has_state(variants_[updated_[i].group])) {
      continue;
    }
    if (made_[i] != nullptr) {
      optimizer_.state()[updated_[i].param.unsafeGetTensorImpl()] = std::move(made_[i]);
    }
    rule_.count_step(*find_state(optimizer_, updated_[i].param));
  }
  drop();
}

void StepUpdate::drop() {
  states_.clear();
  numbers_.clear();
  made_.clear();
}

StepUpdates StepUpdate::declare(Graph& graph, size_t first, size_t kept) const {
  StepUpdates updates{&rule_, {}, {}, clipping_, kept};
  size_t next_state = graph.inputs().size();
  for (const at::Tensor& state : states_) {
    graph.add_input({}, c10::TensorType::get())->set_facts(facts_of(state));
  }
  size_t next_number = graph.inputs().size();
  for (size_t i = 0; i < numbers_.size(); ++i) {
    graph.add_input({}, c10::FloatType::get());
  }
  for (size_t group = 0; group < variants_.size(); ++group) {
    updates.groups.push_back({variants_[group], next_number});
    next_number += updates_[group].numbers.size();
  }
  for (size_t i = 0; i < updated_.size(); ++i) {
    const Update& update = updates_[updated_[i].group];
    updates.parameters.push_back(
        {updated_[i].group, first + updated_[i].input, i + kept, next_state, next_number, updated_[i].param.nbytes()});
    next_state += update.states.size();
    next_number += update.step_numbers.size();
  }
  return updates;
}

void StepUpdate::add_arguments(torch::jit::Stack& arguments, size_t first) const {
  if (!rule_.counts_versions()) {
    for (const Updated& updated : updated_) {
      arguments[first + updated.input] = updated.param.data();
    }
  }
  arguments.insert(arguments.end(), states_.begin(), states_.end());
  arguments.insert(arguments.end(), numbers_.begin(), numbers_.end());
}

}  // namespace sconce
