#include "tools/sconce/ui/interruption.h"

#include <unistd.h>

#include <cerrno>
#include <string_view>

namespace sconce::cli {
namespace {

volatile std::sig_atomic_t asked_to_end = 0;  // the signal

// A call in progress cannot be interrupted, and may take long.
void ask_to_end(int signal) {
  asked_to_end = signal;
  constexpr std::string_view kOfCtrlC = "\nsconce: ending after the current call; Ctrl-C again to end now\n";
  constexpr std::string_view kOfTermination = "\nsconce: ending after the current call; SIGTERM again to end now\n";
  const std::string_view text = signal == SIGTERM ? kOfTermination : kOfCtrlC;
  const int before = errno;
  [[maybe_unused]] const ssize_t written = write(STDERR_FILENO, text.data(), text.size());
  errno = before;
}

}  // namespace

InterruptionGuard::InterruptionGuard(bool handles_termination) : handles_termination_(handles_termination) {
  struct sigaction action{};
  action.sa_handler = ask_to_end;
  action.sa_flags = static_cast<int>(SA_RESETHAND);
  sigemptyset(&action.sa_mask);
  sigaction(SIGINT, &action, &previous_);
  if (handles_termination_) {
    sigaction(SIGTERM, &action, &previous_termination_);
  }
}

InterruptionGuard::~InterruptionGuard() {
  sigaction(SIGINT, &previous_, nullptr);
  if (handles_termination_) {
    sigaction(SIGTERM, &previous_termination_, nullptr);
  }
}

bool interrupted() { return asked_to_end != 0; }
int interruption_signal() { return asked_to_end; }

}  // namespace sconce::cli
