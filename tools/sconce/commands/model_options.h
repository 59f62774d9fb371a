// The options that commands which run a model have in common: the model, its method, its arguments.
#pragma once

#include "tools/sconce/commands/common_options.h"

#include <sconce/module.h>

#include <CLI/App.hpp>

#include <optional>
#include <string>
#include <vector>

namespace sconce::cli {

struct InputOptions {
  std::string file;                // --inputs
  std::vector<std::string> specs;  // --input
  // --seed, for random SPECs and for LibTorch's generator before a call; left out: what the CASES file says, else 0.
  std::optional<uint64_t> seed;
};
void add_input_options(CLI::App& command, InputOptions& options);

// One call of a model, as the command line describes it.
struct Call {
  std::string method;
  std::vector<c10::IValue> arguments;
  uint64_t seed = 0;
};

// Reads the file, or makes the values of the SPECs. `method` (--method) may be empty: then a CASES file names it, else it
// is forward. Throws UserError or c10::Error with one line.
Call read_call(const InputOptions& options, const std::string& method);

// Throws UserError, naming the nearest, when the module has no such method.
void expect_method(const torch::jit::Module& module, const std::string& method);

// The call's arguments as the module's method takes them, on the device. Throws UserError when the module has no such
// method or the arguments do not fit.
std::vector<c10::IValue> fit_call(const torch::jit::Module& module, const Call& call, const CommonOptions& common);

// As sconce::load, with the hints that a user of the command line needs added to the message.
Module load_model(const std::string& path, const Options& options);

// As Module::method; a refusal is a RefusedError.
GraphExecutor& executor_of(const Module& module, const std::string& method);

// `failed_passes` of the method. Without passes of the user's none can fail, and nothing is explained.
std::vector<std::string> failed_passes(const Module& module, const std::string& method);

}  // namespace sconce::cli
