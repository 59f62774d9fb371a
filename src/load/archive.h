// Checks on a file before LibTorch's loader sees it.
#pragma once

#include <string>

namespace sconce {

// Throws c10::Error with one clear line when the path cannot be read or does not hold a TorchScript archive. The message
// begins with the path and says what the file is instead, where that can be told.
void check_archive(const std::string& path);

// The same for a file written by torch.save.
void check_arguments_archive(const std::string& path);

// The first line of a message: LibTorch's own carry stack traces.
std::string first_line(const std::string& message);

// What a message of LibTorch's says about a file: its first line, without the stack and the places in LibTorch's code.
// May be empty.
std::string plain_reason(const std::string& message);

}  // namespace sconce
