// A file that grows while the program runs.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace sconce::cli {

class AppendedFile {
 public:
  // Goes on after the first `length` bytes of the file, which is made if there is none.
  explicit AppendedFile(std::string path, uint64_t length = 0) : path_(std::move(path)), length_(length) {}

  void add(std::string_view bytes) { waiting_ += bytes; }
  // Brings to the disk what was added. Throws UserError with one line that begins with the path; the file is then as before,
  // and the next call tries again.
  void flush();

  const std::string& path() const { return path_; }

 private:
  const std::string path_;
  uint64_t length_;
  std::string waiting_;
};

}  // namespace sconce::cli
