// Files of text that the user names.
#pragma once

#include <string>

namespace sconce::cli {

// The content, without a byte order mark in front. Throws UserError with one line that begins with the path.
std::string read_text_file(const std::string& path);

}  // namespace sconce::cli
