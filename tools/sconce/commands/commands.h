// The subcommands. Each adds its options and help to the application, and sets `chosen` when it is on the command line.
#pragma once

#include "tools/sconce/commands/common_options.h"
#include "tools/sconce/commands/trace_file.h"

#include <CLI/App.hpp>

namespace sconce::cli {

void add_run_command(CLI::App& app, Action& chosen);
void add_check_command(CLI::App& app, Action& chosen);
void add_bench_command(CLI::App& app, Action& chosen);
void add_train_command(CLI::App& app, Action& chosen);
void add_dump_command(CLI::App& app, Action& chosen);
void add_explain_command(CLI::App& app, Action& chosen);
void add_info_command(CLI::App& app, Action& chosen);
void add_opt_command(CLI::App& app, Action& chosen);
void add_op_command(CLI::App& app, Action& chosen);
void add_passes_command(CLI::App& app, Action& chosen);
void add_replay_command(CLI::App& app, Action& chosen);

// The arguments of the command that runs, as run_command_line got them.
const std::vector<std::string>& arguments_of_this_command();

inline const CommonOptions& common_of(const CommonOptions& options) { return options; }
template <typename Options>
const CommonOptions& common_of(const Options& options) {
  return options.common;
}

// Adds the subcommand: `options`, kept alive with it, is filled by the parser and handed to `action`. With --trace-out, all
// that the action runs is traced, unless it `writes_trace` itself.
template <typename Options>
CLI::App& add_command(CLI::App& app, Action& chosen, const char* name, const char* help, std::shared_ptr<Options> options,
                      int (*action)(const Options&), bool writes_trace = false) {
  CLI::App* command = app.add_subcommand(name, help);
  command->callback([&chosen, options, action, writes_trace] {
    chosen = [options, action, writes_trace] {
      const Action run = [&] { return action(*options); };
      return writes_trace ? run() : run_traced(common_of(*options), run);
    };
  });
  return *command;
}

}  // namespace sconce::cli
