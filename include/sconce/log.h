// What sconce reports about its own work. Errors of a call are exceptions, and are not logged.
#pragma once

#include <functional>
#include <string_view>

namespace sconce {

enum class LogLevel {
  kInfo,     // something was done that takes time or memory: a plan was compiled
  kWarning,  // something cannot be done, so that the program runs more slowly
};

using LogCallback = std::function<void(LogLevel level, std::string_view line)>;

// Passes each later line to `callback`, on the thread that reports it: a caller's, or the one that compiles. Several threads
// may call it at the same time. It must not throw, and must not call sconce. With nullptr, as in a new process, warnings go
// to LibTorch's warning handler (in Python `warnings.warn`), and other lines nowhere.
void set_log_callback(LogCallback callback);

}  // namespace sconce
