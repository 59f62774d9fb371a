#include "tools/sconce/values/read_file.h"

#include "tools/sconce/report/errors.h"

#include <cerrno>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <sstream>
#include <string_view>

namespace sconce::cli {

std::string read_text_file(const std::string& path) {
  constexpr std::string_view kByteOrderMark = "\xef\xbb\xbf";
  std::error_code ignored;
  if (std::filesystem::is_directory(path, ignored)) {
    throw UserError(path + ": is a directory, not a file");
  }
  errno = 0;
  std::ifstream file(path, std::ios::binary);
  std::ostringstream content;
  content << file.rdbuf();
  if (!file) {
    throw UserError(path + (errno == ENOENT ? ": no such file" : std::string(": cannot be read: ") + std::strerror(errno)));
  }
  std::string text = content.str();
  return text.starts_with(kByteOrderMark) ? text.substr(kByteOrderMark.size()) : text;
}

}  // namespace sconce::cli
