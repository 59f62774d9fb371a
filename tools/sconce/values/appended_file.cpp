#include "tools/sconce/values/appended_file.h"

#include "tools/sconce/report/errors.h"

#include <fcntl.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>

namespace sconce::cli {

void AppendedFile::flush() {
  if (waiting_.empty()) {
    return;
  }
  const int file = ::open(path_.c_str(), O_WRONLY | O_CREAT | O_CLOEXEC, 0666);
  int error = file < 0 ? errno : 0;
  for (size_t done = 0; error == 0 && done < waiting_.size();) {
    const ssize_t count = ::pwrite(file, waiting_.data() + done, waiting_.size() - done, static_cast<off_t>(length_ + done));
    error = count < 0 && errno != EINTR ? errno : 0;
    done += count > 0 ? static_cast<size_t>(count) : 0;
  }
  if (error == 0 && ::fdatasync(file) != 0) {
    error = errno;
  }
  if (error != 0 && file >= 0) {
    [[maybe_unused]] const int cut = ::ftruncate(file, static_cast<off_t>(length_));
  }
  if (file >= 0) {
    ::close(file);
  }
  if (error != 0) {
    throw UserError(path_ + ": cannot be written: " + std::strerror(error));
  }
  length_ += waiting_.size();
  waiting_.clear();
}

}  // namespace sconce::cli
