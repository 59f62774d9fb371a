// What the program does with its command line. The contract is DESIGN.md §12.
#pragma once

#include <string>
#include <vector>

namespace sconce::cli {

// `arguments` without the program's name. Writes to std::cout and std::cerr; gives the exit code and does not throw.
int run_command_line(const std::vector<std::string>& arguments);

// Ends the process without LibTorch's destructors: to unregister all its operators takes longer than most commands.
[[noreturn]] void end_program(int exit_code);

}  // namespace sconce::cli
