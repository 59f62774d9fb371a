#include "tools/sconce/train/read_ahead.h"

namespace sconce::cli {

ReadAhead::ReadAhead(std::function<std::optional<TrainBatch>()> read) : read_(std::move(read)), thread_([this] { run(); }) {}

ReadAhead::~ReadAhead() {
  {
    const std::lock_guard lock(mutex_);
    shall_stop_ = true;
  }
  changed_.notify_all();
  thread_.join();
}

void ReadAhead::run() {
  constexpr size_t kMostReady = 2;
  std::unique_lock lock(mutex_);
  while (!has_ended_) {
    changed_.wait(lock, [this] { return shall_stop_ || ready_.size() < kMostReady; });
    if (shall_stop_) {
      return;
    }
    lock.unlock();
    std::optional<TrainBatch> batch;
    std::exception_ptr failure;
    try {
      batch = read_();
    } catch (...) {
      failure = std::current_exception();
    }
    lock.lock();
    failure_ = failure;
    has_ended_ = !batch;
    if (batch) {
      ready_.push_back(std::move(*batch));
    }
    changed_.notify_all();
  }
}

std::optional<TrainBatch> ReadAhead::next() {
  std::unique_lock lock(mutex_);
  changed_.wait(lock, [this] { return has_ended_ || !ready_.empty(); });
  if (ready_.empty()) {
    if (failure_) {
      std::rethrow_exception(failure_);
    }
    return std::nullopt;
  }
  TrainBatch batch = std::move(ready_.front());
  ready_.pop_front();
  changed_.notify_all();
  return batch;
}

}  // namespace sconce::cli
