#include "tools/sconce/ui/progress_bar.h"

#include "report/table.h"

#include <fmt/format.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>

namespace sconce::ui {
namespace {

constexpr size_t kBarWidth = 24;
constexpr std::chrono::milliseconds kRedrawInterval{80};

size_t terminal_width() {
  winsize size{};
  const bool known = ioctl(STDERR_FILENO, TIOCGWINSZ, &size) == 0 && size.ws_col > 0;
  return known ? size.ws_col : 80;
}

void write_to_stderr(const std::string& text) {
  std::fputs(text.c_str(), stderr);
  std::fflush(stderr);
}

}  // namespace

std::string progress_line(const std::string& label, size_t done, size_t total, const std::string& current, size_t width) {
  const double share = total == 0 ? 1.0 : static_cast<double>(std::min(done, total)) / static_cast<double>(total);
  const auto filled = static_cast<size_t>(share * kBarWidth);
  std::string line = fmt::format("{} [{:#<{}}{:.<{}}] {:3.0f}%  {}/{}", label, "", filled, "", kBarWidth - filled,
                                 share * 100, done, total);
  if (!current.empty()) {
    line += "  " + current;
  }
  while (display_width(line) > width) {
    line.pop_back();
  }
  return line;
}

ProgressBar::ProgressBar(std::string label, size_t total, ProgressMode mode)
    : label_(std::move(label)),
      total_(total),
      enabled_(mode == ProgressMode::kAlways || (mode == ProgressMode::kAuto && isatty(STDERR_FILENO) == 1)),
      in_place_(isatty(STDERR_FILENO) == 1) {}

ProgressBar::~ProgressBar() { finish(); }

void ProgressBar::advance(const std::string& current) {
  done_ += 1;
  const auto now = std::chrono::steady_clock::now();
  if (enabled_ && (done_ >= total_ || now - last_drawn_ >= kRedrawInterval)) {
    last_drawn_ = now;
    draw(current);
  }
}

void ProgressBar::draw(const std::string& current) {
  const std::string line = progress_line(label_, done_, total_, current, terminal_width() - 1);
  write_to_stderr(in_place_ ? "\r\x1b[K" + line : line + "\n");
}

void ProgressBar::finish() {
  if (enabled_ && in_place_) {
    write_to_stderr("\r\x1b[K");
  }
  enabled_ = false;
}

}  // namespace sconce::ui
