#include "tools/sconce/commands/common_options.h"

#include "base/exception_message.h"
#include "tools/sconce/commands/device.h"
#include "tools/sconce/commands/dump_variable.h"
#include "tools/sconce/commands/ops_library.h"
#include "tools/sconce/report/errors.h"
#include "tools/sconce/report/json.h"
#include "tools/sconce/ui/nearest_name.h"
#include "tools/sconce/ui/number_format.h"
#include "tools/sconce/values/autocast_region.h"
#include "tools/sconce/values/read_file.h"

#include "base/environment.h"

// All of CLI11, once in this library: App.hpp alone declares classes that it uses (Formatter, ConfigBase).
#include <ATen/Parallel.h>
#include <c10/util/Exception.h>
#include <CLI/CLI.hpp>

#include <algorithm>
#include <cstdlib>
#include <optional>
#include <set>

namespace sconce::cli {
namespace {

constexpr int kMostThreads = 1024;
constexpr const char* kDisabledPasses = "disabled_passes";  // including those of plug-ins, which are opened first

bool is_list_of_names(const nlohmann::json& value) {
  return value.is_array() && std::all_of(value.begin(), value.end(), [](const auto& name) { return name.is_string(); });
}

std::optional<CompileMode> compile_mode_of(const std::string& name) {
  return name == "background" ? std::optional(CompileMode::kBackground)
         : name == "blocking" ? std::optional(CompileMode::kBlocking)
         : name == "never"    ? std::optional(CompileMode::kNever)
                              : std::nullopt;
}

void read_option(Options& options, const std::string& key, const nlohmann::json& value, const std::string& path) {
  const auto expect = [&](bool fits, const char* what) {
    if (!fits) {
      throw UserError(path + ": '" + key + "' must be " + what + ", not " + value.dump());
    }
  };
  if (key == "device") {
    expect(value.is_string(), "a text such as \"cpu\"");
    options.device(parse_device(value.get<std::string>()).str());
  } else if (key == "optimize") {
    expect(value.is_boolean(), "true or false");
    options.optimize(value.get<bool>());
  } else if (key == "exact") {
    expect(value.is_boolean(), "true or false");
    options.exact(value.get<bool>());
  } else if (key == "min_differentiable_nodes") {
    expect(value.is_number_unsigned(), "a whole number");
    options.min_differentiable_nodes(value.get<size_t>());
  } else if (key == "record_calls") {
    expect(value.is_boolean(), "true or false");
    options.record_calls(value.get<bool>());
  } else if (key == "plan_cache_capacity") {
    expect(value.is_number_unsigned() && value.get<size_t>() > 0, "a whole number above 0");
    options.plan_cache_capacity(value.get<size_t>());
  } else if (key == "pack_weights") {
    expect(value.is_boolean(), "true or false");
    options.pack_weights(value.get<bool>());
  } else if (key == "page_out_weights") {
    expect(value.is_boolean(), "true or false");
    options.page_out_weights(value.get<bool>());
  } else if (key == "intra_op_threads") {
    expect(value.is_number_unsigned() && value.get<uint64_t>() <= kMostThreads, "a whole number");
    options.intra_op_threads(value.get<int>());
  } else if (key == "cuda_graphs") {
    expect(value.is_boolean(), "true or false");
    options.cuda_graphs(value.get<bool>());
  } else if (key == "profiled_runs") {
    expect(value.is_number_unsigned(), "a whole number");
    options.profiled_runs(value.get<size_t>());
  } else if (key == "compile") {
    const auto mode = value.is_string() ? compile_mode_of(value.get<std::string>()) : std::nullopt;
    expect(mode.has_value(), "\"background\", \"blocking\" or \"never\"");
    options.compile(*mode);
  } else if (key == "frozen") {
    expect(value.is_boolean(), "true or false");
    options.frozen(value.get<bool>());
  } else if (key == "preserved") {
    expect(is_list_of_names(value), "a list of names, as in [\"encoder.scale\"]");
    options.preserve(value.get<std::vector<std::string>>());
  } else if (key == "reproducer_folder") {
    expect(value.is_string(), "the path of a folder");
    options.passes().reproducer_folder(value.get<std::string>());
  } else if (key == kDisabledPasses) {
    expect(is_list_of_names(value), "a list of names, as in [\"unroll_loops\"]");
    for (const std::string name : value) {
      try {
        options.passes().disable(name);
      } catch (const c10::Error& failure) {
        throw UserError(path + ": disabled_passes: " + plain_message(failure));
      }
    }
  } else {
    throw UserError(
        path + ": no option '" + key + "'" +
        ui::did_you_mean(key, {"device", "optimize", "exact", "compile", "min_differentiable_nodes", "record_calls",
                               "pack_weights", "page_out_weights", "intra_op_threads", "cuda_graphs", "plan_cache_capacity",
                               "profiled_runs", "frozen", "preserved", kDisabledPasses, "reproducer_folder"}));
  }
}

std::optional<c10::ScalarType> parse_autocast(const std::string& dtype) {
  if (dtype.empty()) {
    return std::nullopt;
  }
  if (dtype != "bfloat16" && dtype != "float16") {
    throw UserError("--autocast: the CPU casts to bfloat16 or float16, not to '" + dtype + "'" +
                    ui::did_you_mean(dtype, {"bfloat16", "float16"}));
  }
  return dtype == "bfloat16" ? c10::kBFloat16 : c10::kHalf;
}

// The fields of Options as JSON.
nlohmann::json read_options_file(const std::string& path) {
  const std::string text = read_text_file(path);
  std::set<std::string> seen;
  const auto refuse_twice = [&](int depth, nlohmann::json::parse_event_t event, nlohmann::json& parsed) {
    if (event == nlohmann::json::parse_event_t::key && depth == 1 && !seen.insert(parsed.get<std::string>()).second) {
      throw UserError(path + ": '" + parsed.get<std::string>() + "' stands there twice");
    }
    return true;
  };
  nlohmann::json fields;
  try {
    fields = nlohmann::json::parse(text, refuse_twice);
  } catch (const nlohmann::json::parse_error& failure) {
    throw UserError(path + ": not valid JSON: " + failure.what());
  }
  if (!fields.is_object()) {
    throw UserError(path + ": must be a JSON object such as {\"compile\": \"never\"}");
  }
  return fields;
}

}  // namespace

void add_device_option(CLI::App& command, CommonOptions& options) {
  command.add_option("--device", options.device, "where the model runs: cpu, cuda or cuda:N; as saved when left out")
      ->type_name("DEVICE");
}

void add_intra_op_option(CLI::App& command, CommonOptions& options, const std::string& names) {
  command.add_option(names, options.intra_op, "threads inside one operator, LibTorch's and sconce's (as LibTorch chooses)")
      ->type_name("N")
      ->check(between(1, kMostThreads));
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
  const auto read_fields = [&](bool about_plugins) {
    for (const auto& [key, value] : fields.items()) {
      if ((key == kDisabledPasses) == about_plugins) {
        read_option(prepared, key, value, options.options_file);
      }
    }
  };
  read_fields(false);
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
  read_fields(true);
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

CLI::Validator between(double least, double most) {
  const auto check = [least, most](const std::string& text) -> std::string {
    char* end = nullptr;
    const double number = std::strtod(text.c_str(), &end);
    if (!text.empty() && *end == '\0' && number >= least && number <= most) {
      return "";
    }
    constexpr int kDigits = 12;  // no option's limit is longer
    return "must be from " + ui::format_number(least, kDigits) + " to " + ui::format_number(most, kDigits) + ", not " + text;
  };
  return CLI::Validator(check, "");
}

std::string name_of(Tier tier) { return "tier" + std::to_string(static_cast<int>(tier)); }

bool is_tier(const std::string& name) { return name == "tier0" || name == "tier1" || name == "tier2"; }

}  // namespace sconce::cli
