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
  // --seed, for random SPECs and for LibTorch's generator before a call. By default the CASES file's, else 0.
  std::optional<uint64_t> seed;
};
void add_input_options(CLI::App& command, InputOptions& options);

// One call of a model, as described on the command line.
struct Call {
  std::string method;
  std::vector<c10::IValue> arguments;
  uint64_t seed = 0;
};

// Reads the file, or makes the values of the SPECs. `method` (--method) may be empty: the CASES file then names the
// method, or it is forward. Throws UserError or c10::Error with one line.
Call read_call(const InputOptions& options, const std::string& method);

// Throws UserError, with the nearest names, if the module has no such method.
void expect_method(const torch::jit::Module& module, const std::string& method);

// Returns the call's arguments, converted to the types of the module's method and moved to the device. Throws
// UserError if the module has no such method or the arguments do not fit.
std::vector<c10::IValue> fit_call(const torch::jit::Module& module, const Call& call, const CommonOptions& common);

// Like sconce::load, with hints for users of the command line in the message.
Module load_model(const std::string& path, const Options& options);

// Like Module::method. A refusal is thrown as a RefusedError.
GraphExecutor& executor_of(const Module& module, const std::string& method);

// Returns `failed_passes` of the method, without an explanation where none can fail: there are no passes of the user's, and
// no specialized plans that a call has waited for.
std::vector<std::string> failed_passes(const Module& module, const std::string& method);

}  // namespace sconce::cli
