// OptimizerShards: the part of the parameters that this rank updates. The optimizer has states of this part alone (ZeRO,
// stage 1: Rajbhandari et al., "ZeRO: Memory Optimizations Toward Training Trillion Parameter Models", 2020).
#pragma once

#include "training/parallel/gradient_buckets.h"
#include "training/parallel/rank_group.h"
#include "training/trained_parameters.h"
#include "training/update_rule.h"

#include <ATen/core/Tensor.h>
#include <torch/optim/optimizer.h>

#include <array>
#include <cstdint>
#include <memory>
#include <vector>

namespace sconce {

// Each bucket is cut into as many equal parts as there are ranks, wherever the borders fall. A *segment* is what a part has
// of one parameter. While the optimizer is sharded, its groups hold this rank's segments in the place of the parameters:
// tensors of one dimension, in memory of their own. Updates are elementwise, so that a segment gets the bits that the whole
// parameter would get.
//
//   load()     the parameters' elements to the segments
//   …          the update of the segments, with the gradients in the buckets
//   gather()   all ranks' segments to the parameters, by way of the buckets
//
// A parameter changes only once every segment has arrived: where a rank fails, the others' parameters are as before.
class OptimizerShards {
 public:
  // Throws c10::Error for an optimizer of another class than those with an UpdateRule, or a parameter that has gaps in its
  // memory or stands in it twice. `optimizer` and `group` must outlive this.
  OptimizerShards(RankGroup& group, std::shared_ptr<GradientBuckets> buckets, torch::optim::Optimizer& optimizer,
                  TrainedParameters parameters);
  // Gives the optimizer its parameters back, and no states.
  ~OptimizerShards();
  OptimizerShards(const OptimizerShards&) = delete;
  OptimizerShards& operator=(const OptimizerShards&) = delete;

  // Gives the optimizer the segments, and of each state of a parameter this rank's part. Does nothing if it has them.
  void shard();
  // Gives it the parameters again, with whole states, on every rank. All ranks call it.
  void unshard();

  const TrainedParameters& parameters() const { return parameters_; }
  const TrainedParameters& segments() const { return segments_; }
  const std::vector<at::Tensor>& gradients() const { return gradients_; }  // in the buckets, per segment

  void load();
  // Gives segments the gradients of those parameters that have one.
  void take_gradients();
  void gather();

  // Returns how many bytes the optimizer's states of the segments have, or had when it was sharded last.
  size_t state_bytes() const;

 private:
  static constexpr size_t kTensors = UpdateRule::kMaxStates;
  // The state of a whole parameter, on every rank.
  struct WholeState {
    bool exists = false;
    int64_t steps = 0;
    std::array<at::Tensor, kTensors> tensors;  // undefined: the state lacks it
  };
  // Returns those of all parameters, with zeros in the tensors. A collective.
  std::vector<WholeState> describe_states() const;
  void gather_states(size_t bucket, size_t k, const std::vector<WholeState>& states) const;
  void give_back_parameters();
  // Returns the elements of a segment among those of `tensor`, which is like its parameter, as one dimension.
  at::Tensor part_of(const at::Tensor& tensor, size_t segment) const;

  RankGroup& group_;
  const std::shared_ptr<GradientBuckets> buckets_;
  torch::optim::Optimizer& optimizer_;
  const TrainedParameters parameters_;
  std::vector<std::vector<at::Tensor>> groups_;  // the optimizer's own
  std::vector<at::Tensor> parts_;                // per bucket: the memory of its segments
  TrainedParameters segments_;
  std::vector<at::Tensor> gradients_;
  std::vector<size_t> parameter_of_segment_;
  std::vector<int64_t> begins_;  // per segment: its first element among those of the parameter
  bool is_sharded_ = false;
  size_t state_bytes_ = 0;  // before `unshard`
};

}  // namespace sconce
