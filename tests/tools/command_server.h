// Runs command lines of sconce without starting a program each: loading LibTorch takes longer than most of them.
#pragma once

#include "tests/tools/run_program.h"

#include <sys/types.h>

#include <map>
#include <string>
#include <vector>

namespace sconce::tests {

// A process forked from this one before it has started any thread. Every command line is run in a fork of that process, so
// that none sees what this one or an earlier command line has done.
class CommandServer {
 public:
  CommandServer();
  ~CommandServer();
  CommandServer(const CommandServer&) = delete;
  CommandServer& operator=(const CommandServer&) = delete;

  // As `run_program` with the binary `sconce`.
  ProgramResult run(const std::vector<std::string>& arguments, const std::map<std::string, std::string>& variables);

 private:
  int connection_ = -1;
  pid_t process_ = -1;
};

}  // namespace sconce::tests
