// A progress bar on stderr.
#pragma once

#include <chrono>
#include <cstddef>
#include <string>

namespace sconce::ui {

enum class ProgressMode {
  kAuto,    // when stderr is a terminal
  kAlways,  // also into a file or pipe, one line per change
  kNever,
};

// Rewrites one line in place, at most about ten times a second, and erases it at the end, so that only the result stays on
// the terminal.
class ProgressBar {
 public:
  ProgressBar(std::string label, size_t total, ProgressMode mode);
  ~ProgressBar();
  ProgressBar(const ProgressBar&) = delete;
  ProgressBar& operator=(const ProgressBar&) = delete;

  // `current` names the current piece of work.
  void advance(const std::string& current = {});
  void finish();

 private:
  void draw(const std::string& current);
  const std::string label_;
  const size_t total_;
  bool enabled_;
  const bool in_place_;
  size_t done_ = 0;
  std::chrono::steady_clock::time_point last_drawn_{};
};

// "label [#####.....]  50%  3/6  current", cut to `width` characters.
std::string progress_line(const std::string& label, size_t done, size_t total, const std::string& current, size_t width);

}  // namespace sconce::ui
