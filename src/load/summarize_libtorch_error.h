// LibTorch's messages about files, for people.
#pragma once

#include <string>

namespace sconce {

// Returns the essence of LibTorch's message about a file: its first line, without the stack and the places in
// LibTorch's code. May be empty.
std::string summarize_libtorch_error(const std::string& message);

}  // namespace sconce
