// LibTorch's switches between its executors, held for a while.
#pragma once

namespace sconce::peers {

struct ExecutorSettings {
  // Of the thread: false runs graphs op after op.
  bool optimize = true;
  // Of the process. true, true: the profiling executor, LibTorch's default. false, false: plans per argument spec.
  bool executor_mode = true;
  bool profiling_mode = true;

  friend bool operator==(const ExecutorSettings&, const ExecutorSettings&) = default;
};

// The settings hold on this thread, and those of the process everywhere, while the scope lives. The first of several
// scopes sets the process, the last puts it back; scopes that disagree about the process must not overlap: TORCH_CHECK.
class ExecutorScope {
 public:
  explicit ExecutorScope(const ExecutorSettings& settings);
  ~ExecutorScope();
  ExecutorScope(const ExecutorScope&) = delete;
  ExecutorScope& operator=(const ExecutorScope&) = delete;

 private:
  const bool optimize_before_;
};

}  // namespace sconce::peers
