// Writes files completely or not at all.
#pragma once

#include <string>
#include <string_view>

namespace sconce::cli {

// Writes a new file beside `path` and renames it once it is on the disk; until then an existing file stays. Special files
// (/dev/stdout, a pipe) are written directly. Throws UserError with one line that begins with the path.
void write_file(const std::string& path, std::string_view content);

// Checks that `write_file` can create the file, before the work whose result it will hold.
void expect_writable(const std::string& path);

}  // namespace sconce::cli
