// Plan: a graph made ready to run.
#pragma once

#include "ir/graph.h"
#include "plan/object_pool.h"
#include "plan/step.h"

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
// Immutable and shared by all threads, except for the pool of frames and the counter of frames.
class Plan {
 public:
  struct PlannedStep {
    std::unique_ptr<Step> step;
    const Node* node;  // the node it was made from, for messages; null for jumps and moves between blocks
  };

  Plan(std::shared_ptr<const Graph> graph, std::vector<PlannedStep> steps, std::vector<c10::IValue> constants,
       std::vector<Register> inputs, size_t registers, bool may_introduce_grad)
      : graph_(std::move(graph)),
        steps_(std::move(steps)),
        constants_(std::move(constants)),
        inputs_(std::move(inputs)),
        registers_(registers),
        may_introduce_grad_(may_introduce_grad) {}

  const std::shared_ptr<const Graph>& graph() const { return graph_; }
  std::span<const PlannedStep> steps() const { return steps_; }
  std::span<const c10::IValue> constants() const { return constants_; }  // the values of registers 0, 1, …
  std::span<const Register> inputs() const { return inputs_; }
  size_t register_count() const { return registers_; }
  // Whether a result may require a gradient although no input does (`requires_grad_`).
  bool may_introduce_grad() const { return may_introduce_grad_; }

  // Returns one line per step, with its node and source line.
  std::string text() const;

  // Returns a frame for exclusive use: one from the pool, or a new, prepared one.
  std::unique_ptr<Frame> take_frame() const;
  void give_back(std::unique_ptr<Frame> frame) const;
  size_t frames_made() const { return frames_made_.load(std::memory_order_relaxed); }

 private:
  std::shared_ptr<const Graph> graph_;
  std::vector<PlannedStep> steps_;
  std::vector<c10::IValue> constants_;
  std::vector<Register> inputs_;
  size_t registers_;
  bool may_introduce_grad_;
  mutable ObjectPool<Frame> frames_;
  mutable std::atomic<size_t> frames_made_{0};
};

}  // namespace sconce
