#include "tools/sconce/commands/trace_file.h"

#include "report/number_format.h"
#include "tools/sconce/values/write_file.h"

#include <iostream>

namespace sconce::cli {

int run_traced(const CommonOptions& options, const Action& action) {
  if (options.trace_out.empty()) {
    return action();
  }
  expect_writable(options.trace_out);
  StepTrace trace;
  const int code = action();
  write_trace(trace, options.trace_out);
  return code;
}

void write_trace(StepTrace& trace, const std::string& path) {
  write_file(path, trace.json());
  if (trace.calls() == 0) {
    std::cerr << "sconce: warning: --trace-out: no plan ran, so the trace is empty\n";
  }
  if (const uint64_t dropped = trace.dropped_steps(); dropped > 0) {
    std::cerr << "sconce: warning: --trace-out: the trace ends early: it has the first "
              << format_count(StepTrace::kMaxSteps) << " steps of each thread and lacks " << format_count(dropped)
              << "; make fewer calls\n";
  }
}

}  // namespace sconce::cli
