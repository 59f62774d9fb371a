// The subcommands. Each adds its options and help to the application, and sets `chosen` when it is on the command line.
#pragma once

#include "tools/sconce/commands/common_options.h"

#include <CLI/App.hpp>

namespace sconce::cli {

void add_run_command(CLI::App& app, Action& chosen);
void add_check_command(CLI::App& app, Action& chosen);
void add_bench_command(CLI::App& app, Action& chosen);
void add_dump_command(CLI::App& app, Action& chosen);
void add_explain_command(CLI::App& app, Action& chosen);
void add_opt_command(CLI::App& app, Action& chosen);
void add_passes_command(CLI::App& app, Action& chosen);
void add_replay_command(CLI::App& app, Action& chosen);

// Adds the subcommand: `options`, kept alive with it, is filled by the parser and handed to `action`.
template <typename Options>
CLI::App& add_command(CLI::App& app, Action& chosen, const char* name, const char* help, std::shared_ptr<Options> options,
                      int (*action)(const Options&)) {
  CLI::App* command = app.add_subcommand(name, help);
  command->callback([&chosen, options, action] { chosen = [options, action] { return action(*options); }; });
  return *command;
}

}  // namespace sconce::cli
