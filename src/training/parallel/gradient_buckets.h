// GradientBuckets: the memory in which the gradients of parameters are summed over ranks.
#pragma once

#include "training/parallel/bucket_layout.h"

#include <ATen/core/Tensor.h>

#include <vector>

namespace sconce {

class RankGroup;

class GradientBuckets {
 public:
  // Throws c10::Error if rank 0 has other parameters. `group` must outlive this.
  GradientBuckets(RankGroup& group, std::vector<at::Tensor> parameters);

  bool are_of(const std::vector<at::Tensor>& parameters) const;
  const BucketLayout& layout() const { return layout_; }
  const std::vector<at::Tensor>& tensors() const { return tensors_; }  // per bucket
  // Per parameter: where its gradient is in a bucket, in the parameter's form if that is dense.
  const std::vector<at::Tensor>& views() const { return views_; }

  // Sums the gradients of the parameters, each multiplied by `scale`, over the ranks. They are the views afterwards, or
  // undefined if they are so on all ranks. Returns how many ranks had a batch. `has_batch`: whether this rank has one;
  // without, its gradients count as undefined.
  double reduce(double scale = 1, bool has_batch = true);
  // Fills in that this rank has a gradient of every parameter, for a plan that reduces the buckets itself.
  void note_all_used();

 private:
  RankGroup& group_;
  const std::vector<at::Tensor> parameters_;
  const BucketLayout layout_;
  std::vector<at::Tensor> tensors_;
  std::vector<at::Tensor> views_;
  at::Tensor flags_;  // in the last bucket
};

}  // namespace sconce
