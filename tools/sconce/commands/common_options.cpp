#include "tools/sconce/commands/common_options.h"

#include "base/exception_message.h"
#include "base/nearest_name.h"
#include "report/json.h"
#include "report/number_format.h"
#include "tools/sconce/commands/device.h"
#include "tools/sconce/commands/dump_variable.h"
#include "tools/sconce/commands/ops_library.h"
#include "tools/sconce/commands/options_file.h"
#include "tools/sconce/report/errors.h"
#include "tools/sconce/values/autocast_region.h"

#include "base/environment.h"

// All of CLI11, once in this library: App.hpp alone declares classes that it uses (Formatter, ConfigBase).
#include <ATen/Parallel.h>
#include <c10/util/Exception.h>
#include <CLI/CLI.hpp>

#include <algorithm>
#include <cstdlib>
#include <optional>

namespace sconce::cli {
namespace {

std::optional<c10::ScalarType> parse_autocast(const std::string& dtype) {
  if (dtype.empty()) {
    return std::nullopt;
  }
  if (dtype != "bfloat16" && dtype != "float16") {
    throw UserError("--autocast: the CPU casts to bfloat16 or float16, not to '" + dtype + "'" +
                    did_you_mean(dtype, {"bfloat16", "float16"}));
  }
  return dtype == "bfloat16" ? c10::kBFloat16 : c10::kHalf;
}

}  // namespace

void add_device_option(CLI::App& command, CommonOptions& options) {
  command.add_option("--device", options.device, "where the model runs: cpu, cuda or cuda:N; as saved when left out")
      ->type_name("DEVICE");
}

void add_intra_op_option(CLI::App& command, CommonOptions& options, const std::string& names) {
  command.add_option(names, options.intra_op, "threads inside one operator, LibTorch's and sconce's (as LibTorch chooses)")
      ->type_name("N")
      ->check(whole_between(1, kMaxThreads));
}

void add_autocast_option(CLI::App& command, CommonOptions& options) {
  command
      .add_option("--autocast", options.autocast,
                  "call the model with autocast on for the CPU, to this dtype: bfloat16 or float16")
      ->type_name("DTYPE");
}

void add_frozen_option(CLI::App& command, CommonOptions& options) {
  command.add_flag("--frozen", options.frozen,
                   "make constants of the attributes that no method changes; for models in evaluation mode");
}

void add_common_options(CLI::App& command, CommonOptions& options) {
  command.add_flag("--json", options.json, "print JSON to stdout, for programs");
  command
      .add_option("--ops-library", options.ops_libraries,
                  "shared library of custom operators, opened before the model or graph is read")
      ->type_name("LIB.so")
      ->expected(1)
      ->take_all()
      ->allow_extra_args(false);
  command.add_option("--pass-plugin", options.pass_plugins, "shared library with passes of your own")
      ->type_name("LIB.so")
      ->expected(1)
      ->take_all()
      ->allow_extra_args(false);
  command.add_option("--options", options.options_file, "JSON file with fields of sconce::Options")->type_name("FILE");
  command.add_option("--trace-out", options.trace_out, "write what ran, step by step, as a Chrome/Perfetto trace")
      ->type_name("FILE");
}

Options prepare(const CommonOptions& options) {
  Options prepared;
  set_autocast_of_calls(parse_autocast(options.autocast));
  const nlohmann::json fields =
      options.options_file.empty() ? nlohmann::json::object() : read_options_file(options.options_file);
  set_options(prepared, fields, OptionFields::kAllButDisabledPasses, options.options_file);
  const std::string device = !options.device.empty() ? options.device : prepared.device() ? prepared.device()->str() : "";
  if (!device.empty()) {
    make_available(parse_device(device));
    prepared.device(device);
  }
  if (options.frozen) {
    prepared.frozen(true);
  }
  for (const std::string& library : options.ops_libraries) {
    open_ops_library(library);
  }
  for (const std::string& library : options.pass_plugins) {
    try {
      prepared.passes().load_plugin(library);
    } catch (const c10::Error& failure) {
      throw UserError("--pass-plugin: " + plain_message(failure));
    }
  }
  if (options.intra_op > 0) {
    at::set_num_threads(options.intra_op);
  }
  set_options(prepared, fields, OptionFields::kDisabledPasses, options.options_file);
  if (!prepared.preserved().empty() && !prepared.frozen()) {
    throw UserError(options.options_file +
                    ": 'preserved' means something for frozen modules only: add \"frozen\": true, or "
                    "--frozen");
  }
  for (const std::string& typo : find_dump_typos(environment().dump, prepared.passes())) {
    std::cerr << "sconce: warning: " << typo << "\n";
  }
  return prepared;
}

namespace {

// `kind`: what the option takes: "a number".
CLI::Validator number_between(const char* kind, double least, double most) {
  const auto check = [kind, least, most](const std::string& text) -> std::string {
    char* end = nullptr;
    const double number = std::strtod(text.c_str(), &end);
    const bool is_number = !text.empty() && *end == '\0';
    if (is_number && number >= least && number <= most) {
      return "";
    }
    constexpr int kDigits = 12;  // no option's limit is longer
    return "must be " + (is_number ? std::string() : std::string(kind) + " ") + "from " + format_number(least, kDigits) +
           " to " + format_number(most, kDigits) + ", not " + text;
  };
  return CLI::Validator(check, "");
}

}  // namespace

CLI::Validator between(double least, double most) { return number_between("a number", least, most); }
CLI::Validator whole_between(double least, double most) { return number_between("a whole number", least, most); }

}  // namespace sconce::cli
