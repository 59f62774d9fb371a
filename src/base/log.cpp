#include "base/log.h"

#include <c10/util/Exception.h>

#include <atomic>
#include <memory>
#include <mutex>
#include <set>
#include <utility>

namespace sconce {
namespace {

struct Log {
  std::atomic<bool> has_callback{false};
  std::mutex mutex;
  std::shared_ptr<const LogCallback> callback;
  std::set<std::string> once;  // lines of log_once

  static Log& of_process() {
    static auto* const log = new Log;  // compiles may outlive static objects
    return *log;
  }
};

}  // namespace

void set_log_callback(LogCallback callback) {
  Log& log = Log::of_process();
  auto shared = callback ? std::make_shared<const LogCallback>(std::move(callback)) : nullptr;
  const std::lock_guard<std::mutex> lock(log.mutex);
  log.has_callback = shared != nullptr;
  log.callback.swap(shared);
}

bool is_logged(LogLevel level) { return level == LogLevel::kWarning || Log::of_process().has_callback; }

void log(LogLevel level, const std::string& line) {
  Log& log = Log::of_process();
  std::shared_ptr<const LogCallback> callback;
  {
    const std::lock_guard<std::mutex> lock(log.mutex);
    callback = log.callback;
  }
  if (callback != nullptr) {
    (*callback)(level, line);
  } else if (level == LogLevel::kWarning) {
    TORCH_WARN("sconce: ", line);
  }
}

void log_once(LogLevel level, const std::string& line) {
  Log& log_of_process = Log::of_process();
  bool is_first = false;
  {
    const std::lock_guard<std::mutex> lock(log_of_process.mutex);
    is_first = log_of_process.once.insert(line).second;
  }
  if (is_first) {
    log(level, line);
  }
}

}  // namespace sconce
