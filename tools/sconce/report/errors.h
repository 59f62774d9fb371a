// How the command line fails: three forms, two exit codes.
#pragma once

#include "tools/sconce/report/json.h"

#include <sconce/explanation.h>

#include <exception>
#include <stdexcept>
#include <string>
#include <vector>

namespace sconce::cli {

// The exit codes of every command, a stable contract.
enum ExitCode : int {
  kGood = 0,
  kMismatchOrRefusal = 1,
  kUsageOrBadInput = 2,
  kInterrupted = 130,  // as shells have it: 128 + SIGINT
};

// The user's mistake: exit code 2. The message is one line that names the remedy; more lines may follow with details.
class UserError : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

// Something that sconce cannot do, and why: exit code 1.
class RefusedError : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

// An exception in the words of the command line.
struct Failure {
  std::string message;
  const char* kind = "error";  // or "refused", or "internal error": a mistake of sconce's own
  int exit_code = kUsageOrBadInput;
  // Where the message tells them: the node that failed, and the line of the model's source, "model.py:12".
  std::string node;
  std::string source;
};
Failure describe_failure(const std::exception& failure);
// To stderr, the first line behind "sconce: error: " or another kind.
void print(const Failure& failure);
// "error", "kind", "exit_code", and where known "node" and "source".
Json to_json(const Failure& failure);

// Prints the exception to stderr, the first line behind "sconce: error: ", "sconce: refused: " or, when it is sconce's own
// mistake, "sconce: internal error: "; with `json`, an object with the same text to stdout too. Returns the exit code.
int report_failure(const std::exception& failure, bool json);

// Passes of the user's that failed and were left out: which, and why. Other refusals are for `explain`.
std::vector<std::string> failed_passes(const std::vector<RefusalExplanation>& refusals);
// A warning of each.
void warn_of_failed_passes(const std::vector<std::string>& failed);

}  // namespace sconce::cli
