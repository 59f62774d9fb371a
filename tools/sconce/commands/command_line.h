// Runs the program's command line. docs/command_line.md describes it.
#pragma once

#include <string>
#include <vector>

namespace sconce::cli {

// Runs a command and returns the exit code. `arguments` lacks the program's name. Writes to std::cout and std::cerr; does
// not throw.
int run_command_line(const std::vector<std::string>& arguments);

// Ends the process without LibTorch's destructors: unregistering all its operators takes longer than most commands.
[[noreturn]] void end_program(int exit_code);

}  // namespace sconce::cli
