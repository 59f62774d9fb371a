#include "report/options_json.h"

#include "base/exception_message.h"
#include "base/nearest_name.h"

#include <c10/util/Exception.h>
#include <nlohmann/json.hpp>

#include <algorithm>
#include <array>
#include <cstdio>
#include <set>

namespace sconce {
namespace {

constexpr std::string_view kDisabledPassesKey = "disabled_passes";

// The kinds of values, with what a message says of each.
struct ValueKind {
  const char* what;
  bool (*fits)(const nlohmann::json& value);
};
bool is_list_of_names(const nlohmann::json& value) {
  return value.is_array() &&
         std::all_of(value.begin(), value.end(), [](const nlohmann::json& name) { return name.is_string(); });
}
constexpr ValueKind kSwitch = {"true or false", [](const nlohmann::json& value) { return value.is_boolean(); }};
constexpr ValueKind kCount = {"a whole number", [](const nlohmann::json& value) { return value.is_number_unsigned(); }};
constexpr ValueKind kPositive = {"a whole number above 0", [](const nlohmann::json& value) {
                                   return value.is_number_unsigned() && value.get<size_t>() > 0;
                                 }};
constexpr ValueKind kThreads = {"a whole number", [](const nlohmann::json& value) {
                                  return value.is_number_unsigned() && value.get<uint64_t>() <= uint64_t{kMaxThreads};
                                }};
constexpr ValueKind kDeviceName = {"a text such as \"cpu\"", [](const nlohmann::json& value) { return value.is_string(); }};
constexpr ValueKind kFolder = {"the path of a folder", [](const nlohmann::json& value) { return value.is_string(); }};
constexpr ValueKind kMode = {"\"background\", \"blocking\" or \"never\"", [](const nlohmann::json& value) {
                               return value == "background" || value == "blocking" || value == "never";
                             }};
constexpr ValueKind kAttributes = {"a list of names, as in [\"encoder.scale\"]", &is_list_of_names};
constexpr ValueKind kLibraries = {"a list of paths, as in [\"libmy_passes.so\"]", &is_list_of_names};
constexpr ValueKind kPassNames = {"a list of names, as in [\"unroll_loops\"]", &is_list_of_names};

CompileMode compile_mode_of(const std::string& name) {
  return name == "background" ? CompileMode::kBackground : name == "blocking" ? CompileMode::kBlocking : CompileMode::kNever;
}

struct OptionKey {
  std::string_view name;
  const ValueKind& kind;
  void (*set)(Options& options, const nlohmann::json& value);
};

// For the setters that take a value as it stands in the file.
template <typename T, Options& (Options::*kSetter)(T)>
void set_value(Options& options, const nlohmann::json& value) {
  (options.*kSetter)(value.get<T>());
}

constexpr std::array kOptionKeys = {
    OptionKey{"device", kDeviceName,
              [](Options& options, const nlohmann::json& value) { options.device(value.get<std::string>()); }},
    OptionKey{"optimize", kSwitch, set_value<bool, &Options::optimize>},
    OptionKey{"exact", kSwitch, set_value<bool, &Options::exact>},
    OptionKey{
        "compile", kMode,
        [](Options& options, const nlohmann::json& value) { options.compile(compile_mode_of(value.get<std::string>())); }},
    OptionKey{"min_differentiable_nodes", kCount, set_value<size_t, &Options::min_differentiable_nodes>},
    OptionKey{"record_calls", kSwitch, set_value<bool, &Options::record_calls>},
    OptionKey{"pack_weights", kSwitch, set_value<bool, &Options::pack_weights>},
    OptionKey{"time_choices", kSwitch, set_value<bool, &Options::time_choices>},
    OptionKey{"page_out_weights", kSwitch, set_value<bool, &Options::page_out_weights>},
    OptionKey{"intra_op_threads", kThreads, set_value<int, &Options::intra_op_threads>},
    OptionKey{"cuda_graphs", kSwitch, set_value<bool, &Options::cuda_graphs>},
    OptionKey{"plan_cache_capacity", kPositive, set_value<size_t, &Options::plan_cache_capacity>},
    OptionKey{"profiled_runs", kCount, set_value<size_t, &Options::profiled_runs>},
    OptionKey{"frozen", kSwitch, set_value<bool, &Options::frozen>},
    OptionKey{
        "preserved", kAttributes,
        [](Options& options, const nlohmann::json& value) { options.preserve(value.get<std::vector<std::string>>()); }},
    OptionKey{
        "reproducer_folder", kFolder,
        [](Options& options, const nlohmann::json& value) { options.passes().reproducer_folder(value.get<std::string>()); }},
    OptionKey{"pass_plugins", kLibraries,
              [](Options& options, const nlohmann::json& value) {
                for (const std::string path : value) {
                  options.passes().load_plugin(path);
                }
              }},
    OptionKey{kDisabledPassesKey, kPassNames,
              [](Options& options, const nlohmann::json& value) {
                for (const std::string name : value) {
                  options.passes().disable(name);
                }
              }},
};

void set_option(Options& options, const std::string& key, const nlohmann::json& value) {
  const auto* const found =
      std::find_if(kOptionKeys.begin(), kOptionKeys.end(), [&](const OptionKey& each) { return each.name == key; });
  TORCH_CHECK(found != kOptionKeys.end(), "no option '", key, "'", did_you_mean(key, option_keys()));
  TORCH_CHECK(found->kind.fits(value), "'", key, "' must be ", found->kind.what, ", not ", value.dump());
  try {
    found->set(options, value);
  } catch (const c10::Error& failure) {
    throw c10::Error(key + ": " + plain_message(failure));
  }
}

// Returns "1:12: not valid JSON: syntax error while …" for "[json…] parse error at line 1, column 12: syntax error while …".
std::string place_and_reason(const std::string& message) {
  const std::string reason = " not valid JSON: ";
  unsigned line = 0;
  unsigned column = 0;
  const size_t place = message.find("at line ");
  const size_t end = message.find(": ", place);
  if (place == std::string::npos || end == std::string::npos ||
      std::sscanf(message.c_str() + place, "at line %u, column %u", &line, &column) != 2) {
    return reason + message;
  }
  return std::to_string(line) + ":" + std::to_string(column) + ":" + reason + message.substr(end + 2);
}

}  // namespace

nlohmann::json parse_options(const std::string& text) {
  std::set<std::string> seen;
  const auto refuse_twice = [&](int depth, nlohmann::json::parse_event_t event, nlohmann::json& parsed) {
    if (event == nlohmann::json::parse_event_t::key && depth == 1) {
      const auto key = parsed.get<std::string>();
      TORCH_CHECK(seen.insert(key).second, "'", key, "' stands there twice");
    }
    return true;
  };
  nlohmann::json fields;
  try {
    fields = nlohmann::json::parse(text, refuse_twice);
  } catch (const nlohmann::json::parse_error& failure) {
    throw c10::Error(place_and_reason(failure.what()));
  }
  TORCH_CHECK(fields.is_object(), "must be a JSON object such as {\"compile\": \"never\"}");
  return fields;
}

void set_options(Options& options, const nlohmann::json& fields, OptionFields which) {
  for (const auto& [key, value] : fields.items()) {
    if ((key == kDisabledPassesKey) == (which == OptionFields::kDisabledPasses)) {
      set_option(options, key, value);
    }
  }
}

Options Options::from_json(const std::string& text) {
  return without_frames([&] {
    try {
      Options options;
      const nlohmann::json fields = parse_options(text.empty() ? "{}" : text);
      set_options(options, fields, OptionFields::kAllButDisabledPasses);
      set_options(options, fields, OptionFields::kDisabledPasses);
      return options;
    } catch (const c10::Error& failure) {
      throw c10::Error("options: " + plain_message(failure));
    }
  });
}

std::vector<std::string> option_keys() {
  std::vector<std::string> keys;
  for (const OptionKey& each : kOptionKeys) {
    keys.emplace_back(each.name);
  }
  return keys;
}

}  // namespace sconce
