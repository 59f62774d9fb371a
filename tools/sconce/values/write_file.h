// Writes files completely or not at all.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <string_view>

namespace sconce::cli {

// Writes a new file beside `path` and renames it once it is on the disk; until then an existing file stays. Special files
// (/dev/stdout, a pipe) are written directly. Throws UserError with one line that begins with the path.
void write_file(const std::string& path, std::string_view content);

// Takes the bytes of a file, part by part.
using ByteSink = std::function<void(const char* data, size_t bytes)>;
// The same for bytes that `produce` gives part by part. What it throws ends the writing.
void write_file(const std::string& path, const std::function<void(const ByteSink& sink)>& produce);

// Checks that the disk has room for a new file of so many bytes. Throws UserError with one line that begins with the path.
void expect_room(const std::string& path, uint64_t bytes);

// Checks that `write_file` can create the file, before the work whose result it will hold.
void expect_writable(const std::string& path);

}  // namespace sconce::cli
