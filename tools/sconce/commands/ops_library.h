// --ops-library.
#pragma once

#include <string>

namespace sconce::cli {

// Opens a library whose operators register themselves with LibTorch. Throws UserError with one line that says what is
// missing; when the library needs Python, also what to do about it.
void open_ops_library(const std::string& path);

}  // namespace sconce::cli
