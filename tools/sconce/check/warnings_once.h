// Shows each distinct warning of LibTorch's operators once.
#pragma once

#include <c10/util/Exception.h>

#include <mutex>
#include <set>
#include <string>

namespace sconce::cli {

// Passes the first warning of each text on to the handler that the thread had before. A check makes many equal calls, which
// would repeat their warnings. A thread shows its warnings so if it has a c10::WarningUtils::WarningHandlerGuard of this.
class WarningsOnce final : public c10::WarningHandler {
 public:
  void process(const c10::Warning& warning) override {
    {
      const std::lock_guard<std::mutex> lock(mutex_);
      if (!shown_.insert(warning.msg()).second) {
        return;
      }
    }
    shower_->process(warning);
  }

 private:
  c10::WarningHandler* const shower_ = c10::WarningUtils::get_warning_handler();
  std::mutex mutex_;
  std::set<std::string> shown_;
};

}  // namespace sconce::cli
