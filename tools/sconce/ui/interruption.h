// Ctrl-C in the middle of work whose finished part is worth showing.
#pragma once

#include <csignal>
#include <stdexcept>

namespace sconce::cli {

// While it lives, the first SIGINT only asks for the end; a second one ends the process as usual.
class InterruptionGuard {
 public:
  InterruptionGuard();
  ~InterruptionGuard();
  InterruptionGuard(const InterruptionGuard&) = delete;
  InterruptionGuard& operator=(const InterruptionGuard&) = delete;

 private:
  struct sigaction previous_{};
};

// Whether the user asked for the end. Work in pieces looks here between them.
bool interrupted();

// Thrown where a piece of work is of no use unfinished.
class Interrupted : public std::runtime_error {
 public:
  Interrupted() : std::runtime_error("interrupted") {}
};

}  // namespace sconce::cli
