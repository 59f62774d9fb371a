// The options that every command has.
#pragma once

#include <sconce/explanation.h>
#include <sconce/options.h>

#include <CLI/App.hpp>

#include <functional>
#include <string>
#include <vector>

namespace sconce::cli {

// Runs a command after its options are parsed, and returns the exit code.
using Action = std::function<int()>;


struct CommonOptions {
  bool json = false;
  bool frozen = false;
  int intra_op = 0;  // 0: as LibTorch chooses
  std::string device;
  std::string autocast;
  std::vector<std::string> ops_libraries;
  std::vector<std::string> pass_plugins;
  std::string options_file;
  std::string trace_out;
};

// Adds --device, for commands that run a model.
void add_device_option(CLI::App& command, CommonOptions& options);
// Adds --intra-op, for commands that run a model.
void add_intra_op_option(CLI::App& command, CommonOptions& options, const std::string& names = "--intra-op");
// Adds --autocast, for commands that call a model.
void add_autocast_option(CLI::App& command, CommonOptions& options);
// Adds --frozen, for commands that can run a frozen model.
void add_frozen_option(CLI::App& command, CommonOptions& options);
// Adds all other common options.
void add_common_options(CLI::App& command, CommonOptions& options);

// Opens the libraries, checks the device and reads the options file: a JSON object of fields of Options. The error for an
// unknown key names the nearest. Sets the autocast of calls (values/autocast_region.h), and LibTorch's number of threads.
// Must run before any tensor is made, because CUDA must be loaded first (rule R9). Throws UserError, or RefusedError for
// options that this build does not support yet.
Options prepare(const CommonOptions& options);

// Checks a number on the command line: "--threads: must be from 1 to 1024, not 0".
CLI::Validator between(double least, double most);
// The same for options of whole numbers: "--threads: must be a whole number from 1 to 1024, not four".
CLI::Validator whole_between(double least, double most);

}  // namespace sconce::cli
