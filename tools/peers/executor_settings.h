// LibTorch's settings that choose its executor, changed for a scope.
#pragma once

namespace sconce::peers {

struct ExecutorSettings {
  // Setting of the thread; false runs graphs operator after operator.
  bool optimize = true;
  // Settings of the process. true, true: the profiling executor, LibTorch's default. false, false: plans per argument
  // spec.
  bool executor_mode = true;
  bool profiling_mode = true;

  friend bool operator==(const ExecutorSettings&, const ExecutorSettings&) = default;
};

// Applies settings to this thread, and those of the process to the process, during its lifetime. The first of several
// overlapping scopes changes the process, the last one restores it. Scopes that differ in the settings of the process must
// not overlap, which TORCH_CHECK enforces.
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
