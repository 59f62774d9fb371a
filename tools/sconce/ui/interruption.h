// Handles Ctrl-C during work whose finished part is worth showing.
#pragma once

#include <csignal>
#include <stdexcept>

namespace sconce::cli {

// During its lifetime, the first SIGINT requests the end; a second one ends the process as usual.
class InterruptionGuard {
 public:
  InterruptionGuard();
  ~InterruptionGuard();
  InterruptionGuard(const InterruptionGuard&) = delete;
  InterruptionGuard& operator=(const InterruptionGuard&) = delete;

 private:
  struct sigaction previous_{};
};

// Returns whether the user requested the end. Work checks this between its pieces.
bool interrupted();

// Thrown if an unfinished piece of work is of no use.
class Interrupted : public std::runtime_error {
 public:
  Interrupted() : std::runtime_error("interrupted") {}
};

}  // namespace sconce::cli
