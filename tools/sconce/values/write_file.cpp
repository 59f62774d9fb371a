#include "tools/sconce/values/write_file.h"

#include "tools/sconce/report/errors.h"

#include <fcntl.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <filesystem>

namespace sconce::cli {
namespace {

[[noreturn]] void fail(const std::string& path, int error) {
  throw UserError(path + ": cannot be written: " + std::strerror(error));
}

bool is_special(const std::string& path) {
  std::error_code ignored;
  const auto status = std::filesystem::status(path, ignored);
  return std::filesystem::exists(status) && !std::filesystem::is_regular_file(status) &&
         !std::filesystem::is_directory(status);
}

std::string folder_of(const std::string& path) {
  const std::string folder = std::filesystem::path(path).parent_path().string();
  return folder.empty() ? "." : folder;
}

// Writes everything, or returns the error number.
int write_all(int file, std::string_view content) {
  while (!content.empty()) {
    const ssize_t count = ::write(file, content.data(), content.size());
    if (count < 0 && errno != EINTR) {
      return errno;
    }
    content.remove_prefix(count > 0 ? static_cast<size_t>(count) : 0);
  }
  return 0;
}

}  // namespace

void expect_writable(const std::string& path) {
  std::error_code ignored;
  if (std::filesystem::is_directory(path, ignored)) {
    fail(path, EISDIR);
  }
  const std::string place = is_special(path) ? path : folder_of(path);
  if (::access(place.c_str(), W_OK) != 0) {
    fail(path, errno);
  }
}

void write_file(const std::string& path, std::string_view content) {
  expect_writable(path);
  const bool special = is_special(path);
  const std::string written = special ? path : path + ".writing-" + std::to_string(::getpid());
  const int file = ::open(written.c_str(), special ? O_WRONLY : O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0666);
  if (file < 0) {
    fail(path, errno);
  }
  int error = write_all(file, content);
  // A full disk may be reported only here, where delayed writes happen.
  if (error == 0 && !special && ::fsync(file) != 0) {
    error = errno;
  }
  if (::close(file) != 0 && error == 0) {
    error = errno;
  }
  if (!special) {
    if (error == 0 && std::rename(written.c_str(), path.c_str()) != 0) {
      error = errno;
    }
    if (error != 0) {
      ::unlink(written.c_str());
    }
  }
  if (error != 0) {
    fail(path, error);
  }
}

}  // namespace sconce::cli
