// Tasks that run concurrently with their caller: prim::fork and aten::wait.
#pragma once

#include <ATen/core/ivalue.h>

#include <condition_variable>
#include <functional>
#include <memory>
#include <mutex>

namespace sconce {

// Counts the uses of an object. The destructor waits until there are none.
class InFlightCount {
 public:
  InFlightCount() : state_(std::make_shared<State>()) {}
  ~InFlightCount() { wait(); }
  InFlightCount(const InFlightCount&) = delete;
  InFlightCount& operator=(const InFlightCount&) = delete;

  // A use ends with its token.
  using Token = std::shared_ptr<void>;
  Token use() const;
  void wait() const;

 private:
  struct State {
    std::mutex mutex;
    std::condition_variable none;
    size_t users = 0;
  };
  std::shared_ptr<State> state_;
};

using FuturePtr = c10::intrusive_ptr<c10::ivalue::Future>;

// Runs `work` on a thread of TBB's pool, in this thread's state (grad mode, autocast, dispatch keys) and with one intra-op
// thread. Its result or exception completes the returned future, whose type is `type`. `work` is destroyed after it ran.
FuturePtr fork(c10::TypePtr type, std::function<c10::IValue()> work);

// Returns the future's value, or throws its error. A forked task that no thread has started yet runs on this thread. So some
// thread always makes progress, however deeply tasks wait for each other and however few threads there are.
c10::IValue wait(const FuturePtr& future);

}  // namespace sconce
