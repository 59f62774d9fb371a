#include "tools/sconce/interruption.h"

namespace sconce::cli {
namespace {

volatile std::sig_atomic_t asked_to_end = 0;

void ask_to_end(int /*signal*/) { asked_to_end = 1; }

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
