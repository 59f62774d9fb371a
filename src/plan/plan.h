// A graph made ready to run.
#pragma once

#include "ir/graph.h"
#include "plan/object_pool.h"
#include "plan/step.h"

#include <ATen/core/Tensor.h>

#include <algorithm>
#include <atomic>
#include <memory>
#include <span>
#include <string>
#include <vector>

namespace sconce {

// Flat steps over numbered registers:
//
//   registers   0 … constants-1 │ inputs, values …
//   steps       0: aten::mm  1: branch_false → 4  2: …  3: jump → 5  4: …  5: return
//
// Immutable, shared by all threads; the pool of frames and the run counter are the only things that change.
class Plan {
 public:
  struct PlannedStep {
    std::unique_ptr<Step> step;
    const Node* node;  // where it comes from, for messages; null for jumps and moves between blocks
  };

  Plan(std::shared_ptr<const Graph> graph, std::vector<PlannedStep> steps, std::vector<c10::IValue> constants,
       std::vector<Register> inputs, size_t registers, bool may_introduce_grad);

  const std::shared_ptr<const Graph>& graph() const { return graph_; }
  std::span<const PlannedStep> steps() const { return steps_; }
  std::span<const c10::IValue> constants() const { return constants_; }  // what registers 0, 1, … hold
  std::span<const Register> inputs() const { return inputs_; }
  size_t register_count() const { return registers_; }
  // Whether a result may require a gradient although no input and no constant does (`requires_grad_`).
  bool may_introduce_grad() const { return may_introduce_grad_; }
  // Whether a tensor among the constants requires a gradient now. Its owner may change that between two runs.
  bool constants_require_grad() const {
    return std::any_of(constant_tensors_.begin(), constant_tensors_.end(),
                       [](const at::Tensor& tensor) { return tensor.requires_grad(); });
  }

  // One step a line, with its node and source line.
  std::string text() const;

  // A frame nobody else uses: from the pool, or new and prepared.
  std::unique_ptr<Frame> take_frame() const;
  void give_back(std::unique_ptr<Frame> frame) const;
  size_t frames_made() const { return frames_made_.load(std::memory_order_relaxed); }

 private:
  friend class DroppablePlan;

  std::shared_ptr<const Graph> graph_;
  std::vector<PlannedStep> steps_;
  std::vector<c10::IValue> constants_;
  std::vector<at::Tensor> constant_tensors_;  // those in lists and tuples too
  std::vector<Register> inputs_;
  size_t registers_;
  bool may_introduce_grad_;
  std::weak_ptr<const Plan> self_;  // null unless the plan is a DroppablePlan's
  mutable ObjectPool<Frame> frames_;
  mutable std::atomic<size_t> frames_made_{0};
};

// Owns a plan that may be dropped while it runs; the last run destroys it then.
//
//   DroppablePlan ──► Plan ──► pool ──► Frame ──► Plan
//
// Each frame owns the plan, also while it lies in the pool: a run changes no reference count, its frame is enough. Dropping
// the plan closes the pool, which breaks the cycle; frames of runs under way are destroyed when they are given back. A
// caller takes a frame only while it knows that the plan has not been dropped (under the guard of a cache, for example).
class DroppablePlan {
 public:
  DroppablePlan(std::unique_ptr<Plan> plan);  // NOLINT(google-explicit-constructor): takes the place of a unique_ptr
  ~DroppablePlan() { plan_->frames_.close(); }
  DroppablePlan(const DroppablePlan&) = delete;
  DroppablePlan& operator=(const DroppablePlan&) = delete;

  const Plan& operator*() const { return *plan_; }
  const Plan* operator->() const { return plan_.get(); }

 private:
  std::shared_ptr<Plan> plan_;
};

// Gives a plan's frame back however the run ends.
class FrameLease {
 public:
  explicit FrameLease(const Plan& plan) : plan_(plan), frame_(plan.take_frame()) {}
  ~FrameLease() { plan_.give_back(std::move(frame_)); }
  FrameLease(const FrameLease&) = delete;
  FrameLease& operator=(const FrameLease&) = delete;

  const Plan& plan() const { return plan_; }
  Frame& operator*() { return *frame_; }

 private:
  const Plan& plan_;
  std::unique_ptr<Frame> frame_;
};

}  // namespace sconce
