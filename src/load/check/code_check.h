// Checks the code of an archive before LibTorch's parser and compiler, which are recursive, read it.
#pragma once

#include <string_view>

namespace sconce {

// Throws MalformedArchive if code nests so deeply that parsing it could exhaust a thread's stack. Counts brackets, blocks
// (by indentation), and operators of one expression (between two commas). Strings and comments may contain anything. Other
// malformed code is left to the parser.
void check_code(std::string_view code);

}  // namespace sconce
