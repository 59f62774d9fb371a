// sconce: runs, checks, measures and shows TorchScript models.
#include "tools/sconce/commands/command_line.h"

int main(int argc, char** argv) { sconce::cli::end_program(sconce::cli::run_command_line({argv + 1, argv + argc})); }
