// The command line's errors: three kinds, two exit codes.
#pragma once

#include "report/json.h"

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
  kInterrupted = 130,  // as in shells: 128 + SIGINT
  kTerminated = 143,   // 128 + SIGTERM
};

// The user's mistake: exit code 2. The message is one line that names the remedy; more lines may follow with details.
class UserError : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

// A refusal: something that sconce cannot do, with the reason. Exit code 1.
class RefusedError : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

// An exception as the command line reports it.
struct Failure {
  std::string message;
  const char* kind = "error";  // or "refused", or "internal error" for a bug of sconce
  int exit_code = kUsageOrBadInput;
  // If the message names them: the node that failed, and the line of the model's source, "model.py:12".
  std::string node;
  std::string source;
};
Failure describe_failure(const std::exception& failure);
// Prints to stderr. The first line begins with "sconce: error: " or another kind.
void print(const Failure& failure);
// Returns "error", "kind", "exit_code" and, if known, "node" and "source".
Json to_json(const Failure& failure);

// Prints the exception to stderr. The first line begins with "sconce: error: ", "sconce: refused: " or, for a bug of sconce,
// "sconce: internal error: ", followed by the file that it is about, unless that is empty. With `json`, also prints an
// object with the same text to stdout. Returns the exit code.
int report_failure(const std::exception& failure, bool json, const std::string& file = "");

// Returns the passes of the user's that failed and were left out, and failed compiles of specialized plans, with the
// reasons. Other refusals are shown by `explain` only.
std::vector<std::string> failed_passes(const std::vector<RefusalExplanation>& refusals);

}  // namespace sconce::cli
