// Command lines of sconce, and what every use of it must look like.
#pragma once

#include "tests/tools/run_program.h"

#include <map>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

namespace sconce::tests {

// A command line, run in a process of its own.
ProgramResult sconce(const std::vector<std::string>& arguments, const std::map<std::string, std::string>& variables = {});

// Exit code 2 and exactly one line on stderr, which says `expected`; no backtrace, nothing on stdout.
void expect_usage_error(const std::vector<std::string>& arguments, const std::string& expected);
// Exit code 1, and the reason after "sconce: refused: ".
void expect_refusal(const std::vector<std::string>& arguments, const std::string& expected);

// What it printed with --json.
nlohmann::json json_of(const ProgramResult& result);

// Compiles the methods, as in `def forward(self, x: Tensor): ...`, and writes the model into the folder; gives the path.
std::string write_model(const ScratchFolder& folder, const std::string& name, const std::string& methods);

}  // namespace sconce::tests
