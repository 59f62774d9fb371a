#include "base/call_watch.h"

#include <unordered_set>
#include <utility>

namespace sconce {
namespace {

thread_local CallWatch* innermost = nullptr;

// All watches of the process.
struct Watches {
  std::mutex mutex;
  std::unordered_set<CallWatch*> living;
  static Watches& get() {
    static auto& watches = *new Watches;
    return watches;
  }
};

}  // namespace

void CallWatch::Warnings::process(const c10::Warning& warning) {
  has_warned = true;
  outer->process(warning);
}

CallWatch::CallWatch(AtEffect at_effect) : outer_(std::exchange(innermost, this)), at_effect_(at_effect) {
  warnings_.outer = c10::WarningUtils::get_warning_handler();
  c10::WarningUtils::set_warning_handler(&warnings_);
  Watches& watches = Watches::get();
  const std::lock_guard lock(watches.mutex);
  watches.living.insert(this);
}

CallWatch::~CallWatch() {
  c10::WarningUtils::set_warning_handler(warnings_.outer);
  innermost = outer_;
  Watches& watches = Watches::get();
  const std::lock_guard lock(watches.mutex);
  watches.living.erase(this);
}

bool CallWatch::is_on() { return innermost != nullptr; }

void CallWatch::see(const std::string& what) {
  const std::lock_guard lock(mutex_);
  if (seen_.empty()) {
    seen_ = "it " + what;
  }
}

void CallWatch::note(const std::string& what) {
  for (CallWatch* watch = innermost; watch != nullptr; watch = watch->outer_) {
    watch->see(what);
  }
  TORCH_CHECK(!raises(), "it ", what);
}

void CallWatch::note_kept(const std::string& what) {
  if (raises()) {
    note(what);
  }
}

bool CallWatch::raises() {
  for (const CallWatch* watch = innermost; watch != nullptr; watch = watch->outer_) {
    if (watch->at_effect_ == AtEffect::kRaise) {
      return true;
    }
  }
  return false;
}

void CallWatch::note_for_all(const std::string& what) {
  Watches& watches = Watches::get();
  const std::lock_guard lock(watches.mutex);
  for (CallWatch* watch : watches.living) {
    watch->see(what);
  }
}

std::string CallWatch::seen() const {
  const std::lock_guard lock(mutex_);
  return seen_;
}

}  // namespace sconce
