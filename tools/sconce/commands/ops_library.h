// The option --ops-library.
#pragma once

#include <string>

namespace sconce::cli {

// Opens a library whose operators register themselves with LibTorch. Throws UserError with one line that says what is
// missing and, if the library needs Python, what to do (rule R16).
void open_ops_library(const std::string& path);

}  // namespace sconce::cli
