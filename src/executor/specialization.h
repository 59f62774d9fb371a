// Specialization: the plan of one argument spec, from the request to the plan or to the reason why there is none.
#pragma once

#include "executor/argument_spec/argument_spec.h"
#include "executor/callee_table.h"
#include "executor/compile.h"
#include "executor/plan_cache/striped_counter.h"
#include "plan/fork_pool.h"

#include <atomic>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

namespace sconce {

// A plan and its counters.
struct CountedPlan {
  Tier tier;
  DroppablePlan plan;
  double compile_seconds;
  std::optional<GradientExplanation> gradients;
  std::vector<PassTiming> passes;  // of a specialized plan
  mutable StripedCounter runs;
};

// The state that the compiles of an executor's specialized plans read. They may outlive the executor.
struct SpecializationSource {
  const std::weak_ptr<CalleeTable> callees;  // gone if the module is
  const std::string name;
  const Options options;
  const std::shared_ptr<const ArgumentSpecCreator> specs;
  const std::shared_ptr<const Graph> general;  // the graph of the generic plan
  StripedCounter compiles;                     // plans built
  InFlightCount jobs;                          // that wait or run in the background
};

// The entry of the cache for a spec.
class Specialization {
 public:
  // `why_not`: why the generic plan always serves the spec; empty if the spec is to get a plan of its own.
  explicit Specialization(const char* why_not) : why_not_(why_not), is_wanted_(*why_not == '\0') {}

  // Null as long as the generic plan serves the spec. Valid as long as this object.
  const CountedPlan* plan() const { return published_.load(std::memory_order_acquire); }

  // Returns true to one caller, which is to compile.
  bool claim() {
    return is_wanted_.load(std::memory_order_relaxed) && is_wanted_.exchange(false, std::memory_order_relaxed);
  }
  // Undoes `claim`.
  void release() { is_wanted_.store(true, std::memory_order_relaxed); }

  // End a compile: with a plan, with the reason why there is none, or with the failure of the compile. `refusals`: the
  // passes that failed.
  void publish(std::unique_ptr<const CountedPlan> plan, std::vector<RefusalExplanation> refusals);
  void refuse(const std::string& reason, std::vector<RefusalExplanation> refusals);
  void fail(const std::string& reason) noexcept;

  // Whether a compile has ended without a plan, so that the generic plan serves the spec for good.
  bool is_refused() const { return is_refused_.load(std::memory_order_relaxed); }

  // Why there is no plan (yet).
  std::string why_not() const;
  // Adds the passes that failed, or the failure of the compile, to `all` if they are not there: compiled kernels, for
  // example, are refused to each plan alike.
  void add_refusals(std::vector<RefusalExplanation>& all) const;

 private:
  std::atomic<const CountedPlan*> published_{nullptr};
  mutable std::mutex mutex_;
  std::unique_ptr<const CountedPlan> plan_;
  std::string why_not_;
  std::vector<RefusalExplanation> refusals_;
  std::atomic<bool> is_wanted_;
  std::atomic<bool> is_refused_{false};
};

// The part of a call that its compile needs: numbers only, no tensor.
struct SpecializationRequest {
  std::vector<uint64_t> words;
  std::vector<int64_t> symbolic_sizes;
};

// Compiles a plan for the spec on this thread, and ends `target` with it. Throws nothing.
// `callees`: the source's.
void compile_now(SpecializationSource& source, const SpecializationRequest& request, CalleeTable& callees,
                 Specialization& target) noexcept;

// The same on the background thread. The compile is left out if `target` or the module is destroyed before it begins. If the
// queue is full, the claim on `target` is released.
void compile_later(const std::shared_ptr<SpecializationSource>& source, SpecializationRequest request,
                   const std::shared_ptr<Specialization>& target) noexcept;

}  // namespace sconce
