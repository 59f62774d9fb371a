// Work that runs beside its caller: prim::fork and aten::wait.
#pragma once

#include <ATen/core/ivalue.h>

#include <condition_variable>
#include <functional>
#include <memory>
#include <mutex>

namespace sconce {

// Counts those who use something; the destructor waits for the last.
class Users {
 public:
  Users() : state_(std::make_shared<State>()) {}
  ~Users() { wait(); }
  Users(const Users&) = delete;
  Users& operator=(const Users&) = delete;

  // A use lasts as long as the token.
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

// Runs `work` on a thread of TBB's pool, in this thread's state (grad mode, autocast, dispatch keys), with one intra-op
// thread; what it returns or throws goes to the future of type `type`. `work` is destroyed when it has run.
FuturePtr fork(c10::TypePtr type, std::function<c10::IValue()> work);

// The future's value, or throws its error. A forked task that no thread has begun yet runs here: however deeply tasks
// wait for each other, and however few threads there are, some thread always makes progress.
c10::IValue wait(const FuturePtr& future);

}  // namespace sconce
