// Plan: a graph made ready to run.
#pragma once

#include "ir/graph.h"
#include "plan/intra_op_threads.h"
#include "plan/memory_plan.h"
#include "plan/object_pool.h"
#include "plan/step.h"
#include "plan/timed_steps.h"

#include <sconce/explanation.h>

#include <ATen/core/Tensor.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <utility>
#include <vector>

namespace sconce {

// Shared by all frames of a plan. Written when a step is prepared, or when it gives up, and not in every run.
class RefusalCounts {
 public:
  explicit RefusalCounts(size_t states) : counts_(states * kReasons.size()) {}

  // The reasons of single steps, and those of all steps of a run.
  static constexpr std::array kReasons = {NotPrepared::kOperandKind, NotPrepared::kOperandForm, NotPrepared::kDiffers,
                                          NotPrepared::kFastEnough,  NotPrepared::kNoCode,      NotPrepared::kGaveUp,
                                          NotPrepared::kSlower,      NotPrepared::kRequiresGrad};
  static constexpr std::array kReasonsOfRuns = {NotPrepared::kGradients, NotPrepared::kObserved};

  void add(size_t state, NotPrepared reason) { counts_[place(state, reason)].fetch_add(1, std::memory_order_relaxed); }
  uint32_t count(size_t state, NotPrepared reason) const {
    return counts_[place(state, reason)].load(std::memory_order_relaxed);
  }

  // Notes that all steps of some run were ordinary. Writes the first time only, so that threads do not contend.
  void note_run(NotPrepared reason) {
    std::atomic<bool>& met = whole_runs_[place_of_run(reason)];
    if (!met.load(std::memory_order_relaxed)) {
      met.store(true, std::memory_order_relaxed);
    }
  }
  bool met_run(NotPrepared reason) const { return whole_runs_[place_of_run(reason)].load(std::memory_order_relaxed); }

 private:
  static size_t place(size_t state, NotPrepared reason) {
    return state * kReasons.size() + (static_cast<size_t>(reason) - static_cast<size_t>(kReasons.front()));
  }
  static size_t place_of_run(NotPrepared reason) {
    return static_cast<size_t>(reason) - static_cast<size_t>(kReasonsOfRuns.front());
  }
  std::vector<std::atomic<uint32_t>> counts_;  // by state, then reason
  std::array<std::atomic<bool>, kReasonsOfRuns.size()> whole_runs_{};
};

// Flat steps over numbered registers:
//
//   registers   0 … constants-1 │ inputs, values …
//   steps       0: aten::mm  1: branch_false → 4  2: …  3: jump → 5  4: …  5: return
//
// Immutable and shared by all threads, except for the pool of frames and the counter of frames.
class Plan {
 public:
  struct PlannedStep {
    std::unique_ptr<Step> step;
    const Node* node;            // the node it was made from, for messages; null for jumps and moves between blocks
    const Node* loop = nullptr;  // the innermost loop that runs it
    std::vector<std::pair<const Value*, Register>> results = {};  // those that are tensors, and where it leaves them
  };
  // The computation of a step with a kernel: one operator, or a group of them.
  struct KernelNodes {
    std::vector<const Node*> nodes;
    bool is_group;
  };
  // A plan's description of its steps with kernels.
  struct Prepared {
    std::vector<Lifetime> lifetimes;                            // by slot
    std::vector<SlotOwner> slots;                               // by slot
    std::vector<KernelNodes> kernels;                           // by the index of its state in a frame
    std::vector<std::pair<const Node*, NotPrepared>> ordinary;  // operators on tensors that are not prepared
    bool has_captures;                                          // the plan has captured nodes
  };

  Plan(std::shared_ptr<const Graph> graph, std::vector<PlannedStep> steps, std::vector<c10::IValue> constants,
       std::vector<Register> inputs, size_t registers, bool checks_each_step, Prepared prepared = {});
  ~Plan();
  Plan(const Plan&) = delete;
  Plan& operator=(const Plan&) = delete;

  const std::shared_ptr<const Graph>& graph() const { return graph_; }
  std::span<const PlannedStep> steps() const { return steps_; }
  std::span<const c10::IValue> constants() const { return constants_; }  // the values of registers 0, 1, …
  std::span<const Register> inputs() const { return inputs_; }
  size_t register_count() const { return registers_; }
  // Returns whether steps must ask their operands for gradients, because some may require one although no input and no
  // constant does (`requires_grad_`). Such a plan has no slots: autograd may keep any operand.
  bool checks_each_step() const { return checks_each_step_; }
  // Returns whether a constant tensor requires a gradient now. Its owner may change that between two runs.
  bool constants_require_grad() const {
    return std::ranges::any_of(constant_tensors_, [](const at::Tensor& tensor) { return tensor.requires_grad(); });
  }

  // The slots of prepared steps, and the number of those steps that keep state in a frame.
  MemoryPlan& memory() const { return memory_; }
  size_t state_count() const { return prepared_.kernels.size(); }
  const Prepared& prepared() const { return prepared_; }
  // Counts the times that prepared steps ran by their ordinary steps.
  RefusalCounts& refusals() const { return refusals_; }
  TimedSteps& timed() const { return timed_; }

  const std::vector<at::Tensor>& constant_tensors() const { return constant_tensors_; }  // those in lists and tuples, too
  // Returns whether a step may use kernels, or replay captures.
  bool has_prepared_steps() const { return state_count() != 0 || prepared_.has_captures; }

  // Differs from the id of every other plan of the process.
  uint64_t id() const { return id_; }
  // The method or function that the plan runs; may be empty. Set before the first run.
  const std::string& name() const { return name_; }
  void set_name(std::string name) { name_ = std::move(name); }
  // Whether runs switch off the caller's autocast on all devices, because the graph says what it does
  // (lower_callers_autocast, tracers). Set before the first run.
  bool excludes_autocast() const { return excludes_autocast_; }
  void set_excludes_autocast() { excludes_autocast_ = true; }

  // Limits the threads inside one operator in all runs; 0: no limit. Set before the first run.
  IntraOpLimit thread_limit() const { return thread_limit_; }
  void set_thread_limit(IntraOpLimit limit) { thread_limit_ = limit; }
  // Notes how many threads operators of a run may use.
  void note_threads(int threads) const {
    if (most_threads_.load(std::memory_order_relaxed) < threads) {
      most_threads_.store(threads, std::memory_order_relaxed);
    }
  }
  int most_threads() const { return most_threads_.load(std::memory_order_relaxed); }

  // Returns one line per step, with its node and source line.
  std::string text() const;

  // Returns a frame for exclusive use: one from the pool, or a new, prepared one. `module`: whose run it is, null for a
  // graph of none. Steps keep what they know of a module's weights, so a module gets the frame that it had last, if it can.
  std::unique_ptr<Frame> take_frame(const void* module) const;
  void give_back(std::unique_ptr<Frame> frame, const void* module) const;
  // Destroys the frames in the pool.
  void drop_frames() const;
  size_t frames_made() const { return frames_made_.load(std::memory_order_relaxed); }

 private:
  friend class DroppablePlan;

  std::shared_ptr<const Graph> graph_;
  std::vector<PlannedStep> steps_;
  std::vector<c10::IValue> constants_;
  std::vector<at::Tensor> constant_tensors_;  // including those in lists and tuples
  std::vector<Register> inputs_;
  size_t registers_;
  bool checks_each_step_;
  mutable MemoryPlan memory_;
  const Prepared prepared_;
  mutable RefusalCounts refusals_;
  mutable TimedSteps timed_;
  const uint64_t id_;
  std::string name_;
  bool excludes_autocast_ = false;
  IntraOpLimit thread_limit_;
  mutable std::atomic<int> most_threads_{0};
  std::weak_ptr<const Plan> self_;  // null unless the plan is a DroppablePlan's
  mutable ObjectPool<Frame> frames_;
  mutable std::atomic<size_t> frames_made_{0};
};

// Owns a plan that may be dropped during a run; the last run then destroys it. Each frame, also in the pool, counts
// as an owner of the plan: DroppablePlan ──► Plan ──► pool ──► Frame ──► Plan. A run has a frame, so it need not
// count itself. Dropping the plan closes the pool, which breaks the cycle; the frames of current runs are destroyed
// when they are returned. Code that takes a frame must ensure that the plan has not been dropped.
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

// Returns a plan's frame, however the run ends.
class FrameLease {
 public:
  // `weight`: see Plan::take_frame.
  explicit FrameLease(const Plan& plan, const void* weight = nullptr)
      : plan_(plan), weight_(weight), frame_(plan.take_frame(weight)) {}
  ~FrameLease() { plan_.give_back(std::move(frame_), weight_); }

  const Plan& plan() const { return plan_; }
  Frame& operator*() { return *frame_; }

 private:
  const Plan& plan_;
  const void* const weight_;
  std::unique_ptr<Frame> frame_;
};

}  // namespace sconce
