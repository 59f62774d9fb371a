#include "tools/peers/executor_settings.h"

#include <c10/util/Exception.h>
#include <torch/csrc/jit/runtime/graph_executor.h>

#include <mutex>

namespace sconce::peers {
namespace {

// The settings of the process, with the number of scopes that hold them.
struct ProcessSettings {
  std::mutex mutex;
  int scopes = 0;
  bool executor_mode_before = true;
  bool profiling_mode_before = true;
};
ProcessSettings& process_settings() {
  static ProcessSettings settings;
  return settings;
}

}  // namespace

ExecutorScope::ExecutorScope(const ExecutorSettings& settings) : optimize_before_(torch::jit::getGraphExecutorOptimize()) {
  ProcessSettings& process = process_settings();
  const std::lock_guard<std::mutex> lock(process.mutex);
  if (process.scopes == 0) {
    process.executor_mode_before = torch::jit::getExecutorMode().exchange(settings.executor_mode);
    process.profiling_mode_before = torch::jit::getProfilingMode().exchange(settings.profiling_mode);
  }
  TORCH_CHECK(
      torch::jit::getExecutorMode() == settings.executor_mode && torch::jit::getProfilingMode() == settings.profiling_mode,
      "two executors of LibTorch with different settings of the process run at the same time");
  process.scopes += 1;
  torch::jit::setGraphExecutorOptimize(settings.optimize);
}

ExecutorScope::~ExecutorScope() {
  torch::jit::setGraphExecutorOptimize(optimize_before_);
  ProcessSettings& process = process_settings();
  const std::lock_guard<std::mutex> lock(process.mutex);
  process.scopes -= 1;
  if (process.scopes == 0) {
    torch::jit::getExecutorMode() = process.executor_mode_before;
    torch::jit::getProfilingMode() = process.profiling_mode_before;
  }
}

}  // namespace sconce::peers
