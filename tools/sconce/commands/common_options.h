// The options that every command has.
#pragma once

#include <sconce/explanation.h>
#include <sconce/options.h>

#include <CLI/App.hpp>

#include <functional>
#include <string>
#include <vector>

namespace sconce::cli {

// What a command does once the line is understood; gives the exit code.
using Action = std::function<int()>;

struct CommonOptions {
  bool json = false;
  bool frozen = false;
  std::string device;
  std::vector<std::string> ops_libraries;
  std::vector<std::string> pass_plugins;
  std::string options_file;
  std::string trace_out;
};

// --device, of the commands that run a model.
void add_device_option(CLI::App& command, CommonOptions& options);
// --frozen, of those that can do so with a frozen one.
void add_frozen_option(CLI::App& command, CommonOptions& options);
// All others.
void add_common_options(CLI::App& command, CommonOptions& options);

// Opens the libraries, checks the device, reads the options file (a JSON object of fields of Options; an unknown key names
// the nearest). Must run before any tensor is made: CUDA can only join at the start. Throws UserError, or RefusedError for
// what this build does not do yet.
Options prepare(const CommonOptions& options);

// For numbers on the command line: "--threads: must be from 1 to 1024, not 0".
CLI::Validator between(double least, double most);

// The name of a tier on the command line: "tier0" for the generic plan.
std::string name_of(Tier tier);
// Whether the name is of a tier, one that no build makes yet included: "tier0" to "tier2".
bool is_tier(const std::string& name);

}  // namespace sconce::cli
