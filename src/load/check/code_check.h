// Checks the code of an archive before LibTorch's parser and compiler, which call themselves, see it.
#pragma once

#include <string_view>

namespace sconce {

// Throws MalformedArchive when code is nested so deeply that reading it could exhaust a thread's stack: brackets, blocks
// (by their indentation), or operators of one expression (by their number between two commas). Texts and comments may hold
// anything. What is no code is left to the parser.
void check_code(std::string_view code);

}  // namespace sconce
