// Runs the cases of a CASES file.
#pragma once

#include "tools/sconce/check/check_findings.h"
#include "tools/sconce/values/cases.h"

#include <sconce/options.h>

#include <functional>
#include <optional>
#include <string>

namespace sconce::cli {

struct CheckSettings {
  std::string model;   // path
  std::string cases;   // path, for messages; empty for arguments of the command line
  std::string method;  // empty: the method that the cases name
  std::string plan;    // the name of the settings below in findings: "tier0"
  Options options;
  std::string device;  // the device of arguments; empty: as saved
  size_t calls = 3;
  size_t threads = 1;  // above 1: after a case, so many threads call the module at once
  bool grad = false;
  std::optional<bool> train;   // the mode of all submodules; nothing: as saved
  std::optional<double> rtol;  // instead of those of the cases
  std::optional<double> atol;
};

// Called before each case with its name.
using CaseProgress = std::function<void(const std::string& case_name)>;

// Checks each case. The model is loaded again, in sconce and in LibTorch as the reference model, and called `calls` times.
// Call 1 is compared with the recorded answer, if there is one of the mode; every call is compared with the reference
// model's (ReferenceModels). A call that raises does not end the case. With `grad`, gradients after the calls that record
// them are compared: those of call 1 with the recorded ones of case 0, and those of all parameters and arguments with the
// reference model's. Throws UserError if the cases do not fit the model.
void check_model_cases(const ModelCases& cases, const CheckSettings& settings, const CaseProgress& progress,
                       Findings& findings);

// Checks the second form. A suite whose methods have no state is loaded once for all cases, which is faster and equivalent.
void check_operator_cases(const OperatorCases& cases, const CheckSettings& settings, const CaseProgress& progress,
                          Findings& findings);

}  // namespace sconce::cli
