// Handles Ctrl-C, and the end that a scheduler asks for, during work whose finished part is worth keeping.
#pragma once

#include <csignal>
#include <stdexcept>

namespace sconce::cli {

// During its lifetime, the first SIGINT requests the end; a second one ends the process as usual. So does SIGTERM if it
// `handles_termination`.
class InterruptionGuard {
 public:
  explicit InterruptionGuard(bool handles_termination = false);
  ~InterruptionGuard();
  InterruptionGuard(const InterruptionGuard&) = delete;
  InterruptionGuard& operator=(const InterruptionGuard&) = delete;

 private:
  const bool handles_termination_;
  struct sigaction previous_{};
  struct sigaction previous_termination_{};
};

// Returns whether the end was requested. Work checks this between its pieces.
bool interrupted();
// Returns the signal that requested it, SIGINT or SIGTERM; 0 if none did.
int interruption_signal();

// Thrown if an unfinished piece of work is of no use.
class Interrupted : public std::runtime_error {
 public:
  Interrupted() : std::runtime_error("interrupted") {}
};

}  // namespace sconce::cli
