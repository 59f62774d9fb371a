// Reads batches in a thread of its own while the last one is computed with.
#pragma once

#include "tools/sconce/train/data_source.h"

#include <condition_variable>
#include <deque>
#include <exception>
#include <functional>
#include <mutex>
#include <optional>
#include <thread>

namespace sconce::cli {

class ReadAhead {
 public:
  // `read` returns the next batch, or nothing after the last one. It is called in the thread alone.
  explicit ReadAhead(std::function<std::optional<TrainBatch>()> read);
  ~ReadAhead();
  ReadAhead(const ReadAhead&) = delete;
  ReadAhead& operator=(const ReadAhead&) = delete;

  // Returns the next batch, or nothing after the last one. Throws what `read` threw in its place.
  std::optional<TrainBatch> next();

 private:
  void run();

  const std::function<std::optional<TrainBatch>()> read_;
  std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<TrainBatch> ready_;
  bool has_ended_ = false;  // there is no further batch
  std::exception_ptr failure_;
  bool shall_stop_ = false;
  std::thread thread_;
};

}  // namespace sconce::cli
