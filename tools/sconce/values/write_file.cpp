#include "tools/sconce/values/write_file.h"

#include "report/number_format.h"
#include "tools/sconce/report/errors.h"

#include <fcntl.h>
#include <sys/statvfs.h>
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

void expect_room(const std::string& path, uint64_t bytes) {
  struct statvfs disk{};
  if (::statvfs(folder_of(path).c_str(), &disk) != 0) {
    return;  // not every file system tells
  }
  const uint64_t room = uint64_t{disk.f_bavail} * disk.f_frsize;
  if (room < bytes) {
    throw UserError(path + ": cannot be written: it takes " + format_bytes(static_cast<double>(bytes)) +
                    ", and the disk has room for " + format_bytes(static_cast<double>(room)));
  }
}

void write_file(const std::string& path, std::string_view content) {
  write_file(path, [content](const ByteSink& sink) { sink(content.data(), content.size()); });
}

void write_file(const std::string& path, const std::function<void(const ByteSink& sink)>& produce) {
  expect_writable(path);
  const bool special = is_special(path);
  const std::string written = special ? path : path + ".writing-" + std::to_string(::getpid());
  const int file = ::open(written.c_str(), special ? O_WRONLY : O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0666);
  if (file < 0) {
    fail(path, errno);
  }
  int error = 0;
  const auto remove = [&] {
    if (!special) {
      ::unlink(written.c_str());
    }
  };
  try {
    // After an error, the rest is dropped: LibTorch's writers must not be left in the middle of a file.
    produce([&](const char* data, size_t bytes) { error = error == 0 ? write_all(file, {data, bytes}) : error; });
  } catch (...) {
    ::close(file);
    remove();
    throw;
  }
  // A full disk may be reported only here, where delayed writes happen.
  if (error == 0 && !special && ::fsync(file) != 0) {
    error = errno;
  }
  if (::close(file) != 0 && error == 0) {
    error = errno;
  }
  if (error == 0 && !special && std::rename(written.c_str(), path.c_str()) != 0) {
    error = errno;
  }
  if (error != 0) {
    remove();
    fail(path, error);
  }
}

}  // namespace sconce::cli
