// TimedChoices: whether a kernel or LibTorch's operator computes something faster on this machine.
#pragma once

#include "base/file_cache.h"

#include <map>
#include <mutex>
#include <optional>
#include <string>

namespace sconce {

// What calls have timed, kept on disk from process to process. Thread-safe.
class TimedChoices {
 public:
  // The median of some runs each, in seconds.
  struct Times {
    double kernel = 0;
    double op = 0;  // LibTorch's operator
    // The kernel wins unless it is clearly slower: it also works on the operators after it, and other programs on the cores
    // may have disturbed it.
    bool is_kernel_slower() const { return kernel > kClearly * op; }

   private:
    static constexpr double kClearly = 1.15;
  };

  // Keeps files in the folder; none if it is empty.
  explicit TimedChoices(const std::string& folder);
  // Those of this processor and version, beside the kept kernels.
  static TimedChoices& of_process();

  // `key`: all that decides the times on this processor.
  std::optional<Times> find(const std::string& key);
  void note(const std::string& key, Times times);

 private:
  std::string key_of_file(const std::string& key) const { return machine_ + key; }

  const FileCache files_;
  const std::string machine_;  // the processor and the versions
  std::mutex mutex_;
  std::map<std::string, Times> known_;
};

}  // namespace sconce
