#include "tools/sconce/ui/interruption.h"

#include <unistd.h>

#include <cerrno>
#include <string_view>

namespace sconce::cli {
namespace {

volatile std::sig_atomic_t asked_to_end = 0;

// A call in progress cannot be interrupted, and may take long.
void ask_to_end(int /*signal*/) {
  asked_to_end = 1;
  constexpr std::string_view kText = "\nsconce: ending after the current call; Ctrl-C again to end now\n";
  const int before = errno;
  [[maybe_unused]] const ssize_t written = write(STDERR_FILENO, kText.data(), kText.size());
  errno = before;
}

}  // namespace

InterruptionGuard::InterruptionGuard() {
  struct sigaction action{};
  action.sa_handler = ask_to_end;
  action.sa_flags = static_cast<int>(SA_RESETHAND);
  sigemptyset(&action.sa_mask);
  sigaction(SIGINT, &action, &previous_);
}

InterruptionGuard::~InterruptionGuard() { sigaction(SIGINT, &previous_, nullptr); }

bool interrupted() { return asked_to_end != 0; }

}  // namespace sconce::cli
