// Files that are either written completely or not at all.
#pragma once

#include <string>
#include <string_view>

namespace sconce::cli {

// Writes a new file beside `path` and moves it there once it is on the disk; what was there before stays until then.
// Special files (/dev/stdout, a pipe) are written as they are. Throws UserError with one line that begins with the path.
void write_file(const std::string& path, std::string_view content);

// Checks that `write_file` could create the file, before work is done whose result goes there.
void expect_writable(const std::string& path);

}  // namespace sconce::cli
