// Running the cases of a CASES file.
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
  std::string method;  // empty: what the cases say
  std::string plan;    // how findings name the settings below: "tier0"
  Options options;
  std::string device;  // where arguments go; empty: as saved
  size_t calls = 3;
  size_t threads = 1;  // above 1: after a case, so many call the module at once
  bool grad = false;
  std::optional<double> rtol;  // instead of those of the cases
  std::optional<double> atol;
};

// Called before each case with its name.
using CaseProgress = std::function<void(const std::string& case_name)>;

// Per case, the model is loaded afresh, in sconce and as a twin in LibTorch, and called `calls` times. Call 1 is compared
// with the recorded answer, where there is one, every call with the twin (see ReferenceModels). With `grad`, gradients after
// call 1: the recorded ones of case 0, and those of all parameters with the twin's. Throws UserError when cases and model do
// not belong together.
void check_model_cases(const ModelCases& cases, const CheckSettings& settings, const CaseProgress& progress,
                       Findings& findings);

// The second form. A suite whose methods have no state is loaded once for all its cases, which is the same and faster.
void check_operator_cases(const OperatorCases& cases, const CheckSettings& settings, const CaseProgress& progress,
                          Findings& findings);

}  // namespace sconce::cli
