#include "training/parallel/gradient_buckets.h"

#include "training/parallel/rank_group.h"

#include <ATen/core/grad_mode.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/empty_like.h>
#include <ATen/ops/from_blob.h>
#include <ATen/ops/zeros.h>

#include <algorithm>
#include <utility>

namespace sconce {

GradientBuckets::GradientBuckets(RankGroup& group, std::vector<at::Tensor> parameters)
    : group_(group),
      parameters_(std::move(parameters)),
      layout_(
          BucketLayout::of(parameters_, group.settings().first_bucket_bytes, group.settings().bucket_bytes, group.world())),
      views_(parameters_.size()) {
  group.expect_as_on_rank_0("parameters", to_string(layout_, parameters_));
  const at::NoGradGuard no_grad;
  for (const BucketLayout::Bucket& bucket : layout_.buckets) {
    const at::Tensor& tensor =
        tensors_.emplace_back(at::zeros({bucket.size}, at::TensorOptions(bucket.dtype).device(bucket.device)));
    for (const BucketLayout::Member& member : bucket.members) {
      const at::Tensor& parameter = parameters_[member.parameter];
      // No views to autograd, which optimizers could not detach.
      views_[member.parameter] =
          at::empty({0}, tensor.options())
              .set_(tensor.storage(), member.offset, parameter.sizes(),
                    parameter.is_non_overlapping_and_dense() ? parameter.strides() : at::empty_like(parameter).strides());
    }
  }
  flags_ = tensors_.back().narrow(0, layout_.first_flag, static_cast<int64_t>(parameters_.size()) + 1);
}

bool GradientBuckets::are_of(const std::vector<at::Tensor>& parameters) const {
  return std::ranges::equal(parameters, parameters_, [](const auto& a, const auto& b) { return a.is_same(b); });
}

double GradientBuckets::reduce(double scale, bool has_batch) {
  const at::NoGradGuard no_grad;
  std::vector<float> flags(parameters_.size() + 1, 0);
  flags.back() = has_batch ? 1 : 0;
  for (size_t i = 0; has_batch && i < parameters_.size(); ++i) {
    const at::Tensor& gradient = parameters_[i].grad();
    if (gradient.defined()) {
      TORCH_CHECK(gradient.layout() == at::kStrided, "data parallel: the gradient of a parameter of sizes ",
                  parameters_[i].sizes(), " is ", gradient.layout(), "; only dense gradients are summed over ranks");
      flags[i] = 1;
    }
  }
  flags_.copy_(at::from_blob(flags.data(), {static_cast<int64_t>(flags.size())}, at::kFloat));
  std::vector<RankGroup::Work> works;
  for (size_t i = 0; i < tensors_.size(); ++i) {
    for (const BucketLayout::Member& member : layout_.buckets[i].members) {
      const at::Tensor& view = views_[member.parameter];
      if (flags[member.parameter] == 0) {
        view.zero_();
        continue;
      }
      if (const at::Tensor& gradient = parameters_[member.parameter].grad(); !gradient.is_same(view)) {
        view.copy_(gradient);
      }
      if (scale != 1) {
        view.mul_(scale);
      }
    }
    works.push_back(group_.begin_sum(tensors_[i]));
  }
  for (const RankGroup::Work& work : works) {
    work->wait();
  }
  const at::Tensor sums = flags_.to(at::kCPU, at::kFloat);
  const float* const sum = sums.const_data_ptr<float>();
  for (size_t i = 0; i < parameters_.size(); ++i) {
    parameters_[i].mutable_grad() = sum[i] > 0 ? views_[i] : at::Tensor();
  }
  return sum[parameters_.size()];
}

void GradientBuckets::note_all_used() { flags_.fill_(1); }

}  // namespace sconce
