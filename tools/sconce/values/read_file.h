// Reads text files that the user names.
#pragma once

#include <string>

namespace sconce::cli {

// Returns the content without a leading byte order mark. Throws UserError with one line that begins with the path.
std::string read_text_file(const std::string& path);

}  // namespace sconce::cli
