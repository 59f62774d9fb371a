#include "in_place/optimizer_mirror.h"

#include "training/optimizer_class.h"

#include <utility>

namespace sconce {
namespace {

namespace optim = torch::optim;

std::vector<optim::OptimizerParamGroup> groups_of(const std::vector<std::vector<at::Tensor>>& groups) {
  return {groups.begin(), groups.end()};
}

}  // namespace

OptimizerMirror::OptimizerMirror(const std::string& name, const std::vector<std::vector<at::Tensor>>& groups)
    : class_(optimizer_class(name)), optimizer_(class_.make(groups_of(groups))) {
  for (const std::vector<at::Tensor>& group : groups) {
    parameters_.insert(parameters_.end(), group.begin(), group.end());
  }
  clear_states();  // Adagrad has made some
}

void OptimizerMirror::set_options(size_t group, const Numbers& options) {
  size_t read = 0;
  class_.set_options(optimizer_->param_groups().at(group).options(), [&](const char* name) {
    const auto found = options.find(name);
    TORCH_CHECK(found != options.end(), class_.name, " needs the option ", name);
    ++read;
    return found->second;
  });
  TORCH_CHECK(read == options.size(), class_.name, " has ", read, " options, and not ", options.size());
}

void OptimizerMirror::set_state(size_t parameter, int64_t steps, const StateTensors& tensors) {
  auto state = class_.make_state();
  if (int64_t* const count = class_.steps(*state)) {
    *count = steps;
  }
  size_t set = 0;
  class_.visit_tensors(*state, [&](const char* name, at::Tensor& tensor) {
    if (const auto found = tensors.find(name); found != tensors.end()) {
      tensor = found->second;
      ++set;
    }
  });
  TORCH_CHECK(set == tensors.size(), "the state of ", class_.name, " has other tensors");
  optimizer_->state()[parameters_.at(parameter).unsafeGetTensorImpl()] = std::move(state);
}

std::vector<int64_t> OptimizerMirror::steps() const {
  std::vector<int64_t> steps;
  for (const at::Tensor& parameter : parameters_) {
    const auto found = optimizer_->state().find(parameter.unsafeGetTensorImpl());
    const int64_t* const count = found != optimizer_->state().end() ? class_.steps(*found->second) : nullptr;
    steps.push_back(found == optimizer_->state().end() ? -1 : count != nullptr ? *count : 0);
  }
  return steps;
}

OptimizerMirror::StateTensors OptimizerMirror::state(size_t parameter) const {
  StateTensors tensors;
  const auto found = optimizer_->state().find(parameters_.at(parameter).unsafeGetTensorImpl());
  if (found != optimizer_->state().end()) {
    class_.visit_tensors(*found->second, [&](const char* name, at::Tensor& tensor) {
      if (tensor.defined()) {
        tensors.emplace(name, tensor);
      }
    });
  }
  return tensors;
}

}  // namespace sconce
