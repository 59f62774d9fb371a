// BackwardOnThisThread: has LibTorch's engine run backward where a tracer sees it.
#pragma once

#include <c10/core/AutogradState.h>

namespace sconce {

// Lets LibTorch's engine run all of backward on the calling thread. The engine has threads of its own for other devices than
// the CPU.
class BackwardOnThisThread {
 public:
  BackwardOnThisThread() : was_enabled_(c10::AutogradState::get_tls_state().get_multithreading_enabled()) { set(false); }
  ~BackwardOnThisThread() { set(was_enabled_); }
  BackwardOnThisThread(const BackwardOnThisThread&) = delete;
  BackwardOnThisThread& operator=(const BackwardOnThisThread&) = delete;

 private:
  static void set(bool on) { c10::AutogradState::get_tls_state().set_multithreading_enabled(on); }

  const bool was_enabled_;
};

}  // namespace sconce
