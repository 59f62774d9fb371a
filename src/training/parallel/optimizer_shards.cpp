#include "training/parallel/optimizer_shards.h"

#include "base/flat_map.h"
#include "training/optimizer_class.h"
#include "training/update_rule.h"

#include <ATen/core/grad_mode.h>
#include <ATen/ops/empty_like.h>
#include <ATen/ops/empty_strided.h>
#include <ATen/ops/from_blob.h>
#include <ATen/ops/zeros.h>
#include <ATen/ops/zeros_like.h>

#include <algorithm>
#include <span>
#include <utility>

namespace sconce {
namespace {

// Returns elements of a tensor in the order of memory, as a tensor of one dimension with a storage of its own: to autograd
// and to plans it is no view of the other.
at::Tensor elements_of(const at::Tensor& tensor, int64_t first, int64_t count) {
  char* const begin = static_cast<char*>(tensor.mutable_data_ptr()) + first * tensor.element_size();
  return at::from_blob(
      begin, {count}, [keep = tensor.storage()](void*) {}, tensor.options().requires_grad(false), tensor.device());
}

const OptimizerClass& class_of(const torch::optim::Optimizer& optimizer) {
  const UpdateRule* const rule = find_update_rule(optimizer);
  TORCH_CHECK(rule != nullptr,
              "TrainOptions::shard_optimizer: the update of this class of optimizers is not known; sconce "
              "shards SGD, Adam, AdamW, RMSprop and Adagrad");
  return optimizer_class(rule->name());
}

// Returns all tensors that the state may have; undefined ones for those that it has not.
std::vector<at::Tensor> tensors_of(const OptimizerClass& of_optimizer, torch::optim::OptimizerParamState& state) {
  std::vector<at::Tensor> tensors;
  of_optimizer.visit_tensors(state, [&](const char* /*name*/, at::Tensor& tensor) { tensors.push_back(tensor); });
  return tensors;
}

// `tensors`: as `tensors_of` returns them; there may be more.
void set_tensors(const OptimizerClass& of_optimizer, torch::optim::OptimizerParamState& state,
                 std::span<const at::Tensor> tensors) {
  auto next = tensors.begin();
  of_optimizer.visit_tensors(state, [&](const char* /*name*/, at::Tensor& tensor) { tensor = *next++; });
}

}  // namespace

OptimizerShards::OptimizerShards(RankGroup& group, std::shared_ptr<GradientBuckets> buckets,
                                 torch::optim::Optimizer& optimizer, TrainedParameters parameters)
    : group_(group), buckets_(std::move(buckets)), optimizer_(optimizer), parameters_(std::move(parameters)) {
  class_of(optimizer);
  TORCH_CHECK(!parameters_.has_repeated, "TrainOptions::shard_optimizer: a parameter stands in the optimizer twice");
  for (const torch::optim::OptimizerParamGroup& each : optimizer_.param_groups()) {
    groups_.push_back(each.params());
  }
  const at::NoGradGuard no_grad;
  const auto& layout = buckets_->layout().buckets;
  for (size_t i = 0; i < layout.size(); ++i) {
    const at::Tensor& bucket = buckets_->tensors()[i];
    const int64_t size = bucket.numel() / group_.world();
    const int64_t first = size * group_.rank();
    const at::Tensor& part = parts_.emplace_back(at::zeros({size}, bucket.options()));
    for (const BucketLayout::Member& member : layout[i].members) {
      const at::Tensor& parameter = parameters_.tensors[member.parameter];
      TORCH_CHECK(parameter.is_non_overlapping_and_dense(), "TrainOptions::shard_optimizer: a parameter of sizes ",
                  parameter.sizes(), " has gaps in its memory");
      const int64_t begin = std::max(member.offset, first);
      const int64_t end = std::min(member.offset + parameter.numel(), first + size);
      if (begin >= end) {
        continue;
      }
      segments_.tensors.push_back(elements_of(part, begin - first, end - begin));
      segments_.groups.push_back(parameters_.groups[member.parameter]);
      gradients_.push_back(elements_of(bucket, begin, end - begin));
      parameter_of_segment_.push_back(member.parameter);
      begins_.push_back(begin - member.offset);
    }
  }
  shard();
}

OptimizerShards::~OptimizerShards() {
  if (is_sharded_) {
    give_back_parameters();
  }
}

void OptimizerShards::give_back_parameters() {
  for (size_t group = 0; group < groups_.size(); ++group) {
    optimizer_.param_groups()[group].params() = groups_[group];
  }
  for (const at::Tensor& segment : segments_.tensors) {
    optimizer_.state().erase(segment.unsafeGetTensorImpl());
  }
  is_sharded_ = false;
}

at::Tensor OptimizerShards::part_of(const at::Tensor& tensor, size_t segment) const {
  const at::Tensor& parameter = parameters_.tensors[parameter_of_segment_[segment]];
  const int64_t count = segments_.tensors[segment].numel();
  if (tensor.strides() == parameter.strides()) {
    return elements_of(tensor, begins_[segment], count);
  }
  const at::Tensor in_order = at::empty_strided(parameter.sizes(), parameter.strides(), tensor.options());
  return elements_of(in_order.copy_(tensor), begins_[segment], count);
}

void OptimizerShards::shard() {
  if (is_sharded_) {
    return;
  }
  const at::NoGradGuard no_grad;
  const OptimizerClass& of_optimizer = class_of(optimizer_);
  auto& states = optimizer_.state();
  for (size_t i = 0; i < segments_.tensors.size(); ++i) {
    const at::Tensor& parameter = parameters_.tensors[parameter_of_segment_[i]];
    const auto whole = states.find(parameter.unsafeGetTensorImpl());
    if (whole == states.end()) {
      continue;
    }
    auto state = of_optimizer.make_state();
    if (int64_t* const steps = of_optimizer.steps(*state)) {
      *steps = *of_optimizer.steps(*whole->second);
    }
    std::vector<at::Tensor> tensors = tensors_of(of_optimizer, *whole->second);
    for (at::Tensor& tensor : tensors) {
      tensor = tensor.defined() ? part_of(tensor, i).clone() : tensor;
    }
    set_tensors(of_optimizer, *state, tensors);
    states[segments_.tensors[i].unsafeGetTensorImpl()] = std::move(state);
  }
  FlatSet<const c10::TensorImpl*> trained;
  for (const at::Tensor& parameter : parameters_.tensors) {
    states.erase(parameter.unsafeGetTensorImpl());
    trained.insert(parameter.unsafeGetTensorImpl());
  }
  for (size_t group = 0; group < groups_.size(); ++group) {
    std::vector<at::Tensor>& params = optimizer_.param_groups()[group].params();
    std::erase_if(params, [&](const at::Tensor& each) { return trained.contains(each.unsafeGetTensorImpl()); });
    for (size_t i = 0; i < segments_.tensors.size(); ++i) {
      if (segments_.groups[i] == group) {
        params.push_back(segments_.tensors[i]);
      }
    }
  }
  is_sharded_ = true;
}

// A rank knows the states of its own segments. That of a parameter is described by the rank that has its first element.
std::vector<OptimizerShards::WholeState> OptimizerShards::describe_states() const {
  const OptimizerClass& of_optimizer = class_of(optimizer_);
  constexpr int64_t kColumns = 2 + kTensors;  // whether there is one, its steps, which tensors
  const at::Tensor own = at::zeros({static_cast<int64_t>(parameters_.tensors.size()), kColumns}, at::kLong);
  for (size_t i = 0; i < segments_.tensors.size(); ++i) {
    auto* const state = find_state(optimizer_, segments_.tensors[i]);
    if (begins_[i] != 0 || state == nullptr) {
      continue;
    }
    int64_t* const row = own.mutable_data_ptr<int64_t>() + static_cast<int64_t>(parameter_of_segment_[i]) * kColumns;
    row[0] = 1;
    const int64_t* const steps = of_optimizer.steps(*state);
    row[1] = steps != nullptr ? *steps : 0;
    const std::vector<at::Tensor> tensors = tensors_of(of_optimizer, *state);
    std::ranges::transform(tensors, row + 2, [](const at::Tensor& tensor) { return tensor.defined() ? 1 : 0; });
  }
  const at::Tensor on_device = own.to(buckets_->tensors().front().device());
  group_.begin_sum(on_device)->wait();
  const at::Tensor all = on_device.to(at::kCPU);
  std::vector<WholeState> states(parameters_.tensors.size());
  for (size_t i = 0; i < states.size(); ++i) {
    const int64_t* const row = all.const_data_ptr<int64_t>() + static_cast<int64_t>(i) * kColumns;
    states[i].exists = row[0] != 0;
    states[i].steps = row[1];
    for (size_t k = 0; k < kTensors; ++k) {
      if (row[2 + k] != 0) {
        states[i].tensors[k] = at::zeros_like(parameters_.tensors[i], {}, at::MemoryFormat::Preserve);
      }
    }
  }
  return states;
}

// Fills the k-th tensor of the states of a bucket's parameters with all ranks' segments.
void OptimizerShards::gather_states(size_t bucket, size_t k, const std::vector<WholeState>& states) const {
  const auto& members = buckets_->layout().buckets[bucket].members;
  const auto tensor_of = [&](size_t parameter) -> const at::Tensor& { return states[parameter].tensors[k]; };
  if (std::ranges::none_of(members, [&](const auto& member) { return tensor_of(member.parameter).defined(); })) {
    return;
  }
  const OptimizerClass& of_optimizer = class_of(optimizer_);
  const at::Tensor own = at::zeros_like(parts_[bucket]);
  const int64_t first = own.numel() * group_.rank();
  for (size_t i = 0; i < segments_.tensors.size(); ++i) {
    const auto member =
        std::ranges::find(members, parameter_of_segment_[i], [](const auto& each) { return each.parameter; });
    auto* const state = member != members.end() ? find_state(optimizer_, segments_.tensors[i]) : nullptr;
    if (state != nullptr && tensor_of(member->parameter).defined()) {
      own.narrow(0, member->offset + begins_[i] - first, segments_.tensors[i].numel())
          .copy_(tensors_of(of_optimizer, *state)[k]);
    }
  }
  const at::Tensor all = at::empty_like(buckets_->tensors()[bucket]);
  group_.begin_gather(all, own)->wait();
  for (const BucketLayout::Member& member : members) {
    if (const at::Tensor& tensor = tensor_of(member.parameter); tensor.defined()) {
      elements_of(tensor, 0, tensor.numel()).copy_(all.narrow(0, member.offset, tensor.numel()));
    }
  }
}

void OptimizerShards::unshard() {
  if (!is_sharded_) {
    return;
  }
  state_bytes_ = state_bytes();
  const at::NoGradGuard no_grad;
  const std::vector<WholeState> whole = describe_states();
  for (size_t k = 0; k < kTensors; ++k) {
    for (size_t bucket = 0; bucket < parts_.size(); ++bucket) {
      gather_states(bucket, k, whole);
    }
  }
  give_back_parameters();
  const OptimizerClass& of_optimizer = class_of(optimizer_);
  for (size_t i = 0; i < whole.size(); ++i) {
    if (!whole[i].exists) {
      continue;
    }
    auto state = of_optimizer.make_state();
    if (int64_t* const steps = of_optimizer.steps(*state)) {
      *steps = whole[i].steps;
    }
    set_tensors(of_optimizer, *state, whole[i].tensors);
    optimizer_.state()[parameters_.tensors[i].unsafeGetTensorImpl()] = std::move(state);
  }
}

void OptimizerShards::load() {
  const at::NoGradGuard no_grad;
  for (size_t i = 0; i < segments_.tensors.size(); ++i) {
    segments_.tensors[i].copy_(part_of(parameters_.tensors[parameter_of_segment_[i]].data(), i));
  }
}

void OptimizerShards::take_gradients() {
  for (size_t i = 0; i < segments_.tensors.size(); ++i) {
    const bool has_gradient = parameters_.tensors[parameter_of_segment_[i]].grad().defined();
    segments_.tensors[i].mutable_grad() = has_gradient ? gradients_[i] : at::Tensor();
  }
}

void OptimizerShards::gather() {
  const at::NoGradGuard no_grad;
  std::vector<RankGroup::Work> works;
  for (size_t i = 0; i < parts_.size(); ++i) {
    works.push_back(group_.begin_gather(buckets_->tensors()[i], parts_[i]));
  }
  for (const RankGroup::Work& work : works) {
    work->wait();
  }
  for (size_t i = 0; i < parameters_.tensors.size(); ++i) {
    parameters_.tensors[i].copy_(buckets_->views()[i]);
  }
}

size_t OptimizerShards::state_bytes() const {
  if (!is_sharded_) {
    return state_bytes_;
  }
  size_t bytes = 0;
  const OptimizerClass& of_optimizer = class_of(optimizer_);
  for (const auto& [parameter, state] : optimizer_.state()) {
    of_optimizer.visit_tensors(
        *state, [&](const char* /*name*/, at::Tensor& tensor) { bytes += tensor.defined() ? tensor.nbytes() : 0; });
  }
  return bytes;
}

}  // namespace sconce
