// --trace-out: the trace of what a command runs.
#pragma once

#include "tools/sconce/commands/common_options.h"

#include <sconce/step_trace.h>

namespace sconce::cli {

// Runs the command. With --trace-out, records its steps and writes them if the command ends without an exception. Throws
// UserError, before the command begins, if the file cannot be written.
int run_traced(const CommonOptions& options, const Action& action);

// Writes the trace, and warns if it is empty or incomplete.
void write_trace(StepTrace& trace, const std::string& path);

}  // namespace sconce::cli
