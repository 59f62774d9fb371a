// Measures executors in processes of their own, so that figures differ from process to process as they do for users.
#pragma once

#include "report/json.h"
#include "tools/sconce/bench/measure.h"

#include <string>
#include <vector>

namespace sconce::cli {

// Called before each process, with what it measures.
using ProcessProgress = std::function<void(const std::string& what)>;

// Runs `command`, which is this program with arguments that make it measure one call, in `processes` processes. Each answers
// with `answer_with`. Between them, a process for each executor makes a first call and no other. Returns the calls of all
// processes together, and as `rounds` the median of each process. Throws what a process reports, as UserError or
// RefusedError.
MeasurementTable measure_in_processes(const std::vector<std::string>& command, size_t processes,
                                      const ProcessProgress& progress);
// How many processes that is.
size_t count_of_processes(size_t processes, size_t executors);

// Options of these processes, which `sconce bench --help` does not show.
inline constexpr const char* kSubjectOption = "--subject";  // measures the call of this number alone
inline constexpr const char* kAnswersOption = "--answers";  // prints all calls
inline constexpr const char* kColdOption = "--cold";        // of this executor makes one call

// Returns the command of such a process for the arguments of this one: without options that are the parent's, for output,
// baseline, profile and processes.
std::vector<std::string> command_for_children(const std::vector<std::string>& arguments);

Json answer_with(const MeasurementTable& table);
// Loads the model, and makes the executor's first call. The process has done nothing before.
Json answer_with_cold_call(const Contestant& contestant, const MeasureSettings& settings);

}  // namespace sconce::cli
