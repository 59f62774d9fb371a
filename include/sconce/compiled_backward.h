// CompiledBackward: a scope in which backward runs as a plan.
#pragma once

#include <sconce/explanation.h>
#include <sconce/options.h>

#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

namespace sconce {

class BackwardPrograms;  // what a cache holds

// Counts the backwards of a cache by who ran them.
struct BackwardExplanation {
  uint64_t by_plan = 0;    // backwards that a plan ran
  uint64_t recorded = 0;   // backwards that were recorded while they ran
  uint64_t by_engine = 0;  // backwards that LibTorch's engine ran
  // Why the engine ran them, and how often.
  std::vector<std::pair<std::string, uint64_t>> reasons;
  // Why a plan could not leave sizes open. Each size then has a plan of its own, recorded in its second backward.
  std::vector<std::string> why_sizes_are_fixed;
  std::vector<Explanation> plans;
};

// The plans of backwards. Thread-safe.
class BackwardCache {
 public:
  // Plans beyond `options.plan_cache_capacity()` replace the least recently used ones.
  explicit BackwardCache(const Options& options);
  ~BackwardCache();

  BackwardExplanation explain() const;
  void clear();
  // Waits until the background thread has no compile of this cache left.
  void wait_for_compiles() const;

 private:
  friend class CompiledBackward;
  const std::shared_ptr<BackwardPrograms> programs_;
};

// While the scope lives, `backward()` and `autograd::grad` on this thread run on this thread as plans. A backward is
// recorded while it runs: the first one at once, one of another kind the second time it runs. Later ones with
// nodes, sizes and dtypes alike run the plan of it. When nodes and dtypes are alike and sizes are others, a second recording
// leaves those sizes open, and its plan serves all sizes of at least 2. What the formulas assumed about sizes is checked
// before each run. Hooks of every kind, torch::autograd::Functions and other nodes without
// a known formula run between the plans' graphs, in the engine's order and with real tensors; if they act in another way
// than when they were recorded, the rest of that backward runs node by node. Gradients, errors and accumulation are those of
// LibTorch's engine.
//
// The engine runs the rest, and `explain` has the reason: `create_graph`, sparse gradients, formulas that read elements of a
// tensor on the host (`max()` over all elements), backwards that start within another, the first ones of another kind, and
// those whose plan is still being compiled in the background.
//
// Scopes nest, and the innermost counts. They belong to the thread that made them, and are destroyed in reverse order.
class CompiledBackward {
 public:
  // Uses the plans that all scopes of the process share.
  CompiledBackward();
  // Uses the plans of a cache, which may end before the scope.
  explicit CompiledBackward(const BackwardCache& cache);
  // Uses plans of its own, which end with the scope.
  explicit CompiledBackward(const Options& options);
  ~CompiledBackward();
  CompiledBackward(const CompiledBackward&) = delete;
  CompiledBackward& operator=(const CompiledBackward&) = delete;

  BackwardExplanation explain() const;
  void wait_for_compiles() const;

 private:
  const std::shared_ptr<BackwardPrograms> programs_;
  BackwardPrograms* const outer_;
};

// A scope in which LibTorch's engine runs backward, also within a CompiledBackward.
class EagerBackward {
 public:
  EagerBackward();
  ~EagerBackward();
  EagerBackward(const EagerBackward&) = delete;
  EagerBackward& operator=(const EagerBackward&) = delete;

 private:
  BackwardPrograms* const outer_;
};

}  // namespace sconce
