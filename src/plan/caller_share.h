// CallerShare: how many threads a call may use while other threads run calls, too.
#pragma once

namespace sconce {

struct CallingThread;

// Marks this thread as being in a call for as long as the object lives. A nested call, such as one of a submodule, is part
// of the outer call.
//
// Teams of threads on the same cores wait for each other. Operators of two calls that use all cores each can take ten times
// as long as with one thread each. So N threads that run calls get the Nth part of the cores each. A thread counts by the
// share of the last milliseconds that it spent in calls: a short call now and then takes no cores from others. Threads look
// for each other at most every half millisecond, and only if a second one has run calls, so that short calls do not pay for
// it. A thread that compiles plans has a core of its own meanwhile.
class CallerShare {
 public:
  CallerShare();
  ~CallerShare();
  CallerShare(const CallerShare&) = delete;
  CallerShare& operator=(const CallerShare&) = delete;

  // Returns how many threads an operator of the call may use; 0: any number.
  int threads() const { return threads_; }

  // Lets calls on this thread count as part of other threads' calls from now on.
  static void leave_out_this_thread();

 private:
  CallingThread& thread_;
  int threads_ = 0;
};

}  // namespace sconce
