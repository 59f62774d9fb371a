#include "tools/sconce/report/graphviz.h"

#include "tools/sconce/report/errors.h"

#include <fcntl.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <filesystem>

extern char** environ;

namespace sconce::cli {
namespace {

// A file without a name, which `dot` can read or write by its number. Pipes could fill up on both sides.
class ScratchFile {
 public:
  ScratchFile() {
    std::string path = std::filesystem::temp_directory_path() / "sconce-XXXXXX";
    file_ = ::mkostemp(path.data(), O_CLOEXEC);
    if (file_ < 0) {
      throw UserError(path + ": cannot be written: " + std::strerror(errno));
    }
    ::unlink(path.c_str());
  }
  ~ScratchFile() { ::close(file_); }
  ScratchFile(const ScratchFile&) = delete;
  ScratchFile& operator=(const ScratchFile&) = delete;

  int number() const { return file_; }

  void write(const std::string& text) const {
    for (size_t done = 0; done < text.size();) {
      const ssize_t count = ::write(file_, text.data() + done, text.size() - done);
      if (count < 0) {
        throw UserError(std::string("scratch file for dot: ") + std::strerror(errno));
      }
      done += static_cast<size_t>(count);
    }
    ::lseek(file_, 0, SEEK_SET);
  }

  std::string read() const {
    ::lseek(file_, 0, SEEK_SET);
    std::string text;
    char buffer[1 << 14];
    for (ssize_t count = 0; (count = ::read(file_, buffer, sizeof buffer)) > 0;) {
      text.append(buffer, static_cast<size_t>(count));
    }
    return text;
  }

 private:
  int file_;
};

}  // namespace

std::string draw_svg(const std::string& dot_text) {
  const ScratchFile input;
  const ScratchFile output;
  const ScratchFile errors;
  input.write(dot_text);

  posix_spawn_file_actions_t actions;
  posix_spawn_file_actions_init(&actions);
  posix_spawn_file_actions_adddup2(&actions, input.number(), STDIN_FILENO);
  posix_spawn_file_actions_adddup2(&actions, output.number(), STDOUT_FILENO);
  posix_spawn_file_actions_adddup2(&actions, errors.number(), STDERR_FILENO);
  char program[] = "dot";
  char format[] = "-Tsvg";
  char* arguments[] = {program, format, nullptr};
  pid_t child = 0;
  const int error = posix_spawnp(&child, program, &actions, nullptr, arguments, environ);
  posix_spawn_file_actions_destroy(&actions);
  int status = 127 << 8;
  if (error == 0) {
    ::waitpid(child, &status, 0);
  }
  if (error == ENOENT || (WIFEXITED(status) && WEXITSTATUS(status) == 127)) {
    throw UserError(
        "--format svg needs Graphviz' program 'dot', which is not installed; install graphviz, or use --format dot");
  }
  if (error != 0 || !WIFEXITED(status) || WEXITSTATUS(status) != 0) {
    throw UserError("Graphviz' program 'dot' failed: " + (error != 0 ? std::string(std::strerror(error)) : errors.read()));
  }
  return output.read();
}

}  // namespace sconce::cli
