#include "tests/support/children.h"

#include <ATen/Parallel.h>
#include <c10/util/Exception.h>

#include <sys/time.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <iostream>
#include <sstream>

namespace sconce::testing {
namespace {

void write_line(int descriptor, std::string line) {
  std::replace(line.begin(), line.end(), '\n', ' ');
  line += '\n';
  if (write(descriptor, line.data(), line.size()) != static_cast<ssize_t>(line.size())) {
    _exit(3);
  }
}

[[noreturn]] void run_child(size_t piece, size_t first, size_t count, unsigned seconds, int descriptor,
                            const PieceWork& work) {
  at::set_num_threads(1);  // the child has none of the parent's threads
  class Quiet final : public c10::WarningHandler {
    void process(const c10::Warning& /*warning*/) override {}
  } quiet;
  c10::WarningUtils::set_warning_handler(&quiet);
  for (; piece < count; ++piece, first = 0) {
    const itimerval limit = {.it_interval = {}, .it_value = {.tv_sec = static_cast<time_t>(seconds), .tv_usec = 0}};
    setitimer(ITIMER_PROF, &limit, nullptr);
    // A child whose heap is damaged may wait for a lock for ever, which takes no processor time.
    alarm(seconds * 2);
    write_line(descriptor, "# " + std::to_string(piece));
    work(piece, first, [&](const std::string& line) { write_line(descriptor, line); });
  }
  _exit(0);
}

}  // namespace

std::vector<PieceReport> run_in_children(size_t count, unsigned seconds, const PieceWork& work) {
  std::vector<PieceReport> reports(count);
  size_t piece = 0;
  size_t first = 0;
  while (piece < count) {
    int ends[2];
    TORCH_CHECK(pipe(ends) == 0, "no pipe");
    std::cout.flush();
    const pid_t child = ::fork();
    TORCH_CHECK(child >= 0, "no process");
    if (child == 0) {
      close(ends[0]);
      run_child(piece, first, count, seconds, ends[1], work);
    }
    close(ends[1]);
    FILE* lines = fdopen(ends[0], "r");
    char* line = nullptr;
    size_t capacity = 0;
    std::string doing = "the beginning";
    while (getline(&line, &capacity, lines) > 0) {
      std::istringstream words(line);
      std::string mark;
      words >> mark;
      if (mark == "#") {
        words >> piece;
        first = 0;
        doing = "the beginning";
      } else if (mark == "@") {
        words >> first;
        std::getline(words >> std::ws, doing);
      } else {
        reports[piece].lines.emplace_back(line, std::string(line).find('\n'));
      }
    }
    free(line);
    fclose(lines);
    int status = 0;
    waitpid(child, &status, 0);
    if (WIFEXITED(status) && WEXITSTATUS(status) == 0) {
      return reports;
    }
    reports[piece].crashes.push_back(doing);
    ++first;
  }
  return reports;
}

}  // namespace sconce::testing
