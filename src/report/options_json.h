// Options as JSON: what Options::from_json and the file of --options read.
#pragma once

#include <sconce/options.h>

#include <nlohmann/json_fwd.hpp>

#include <string>
#include <vector>

namespace sconce {

constexpr int kMaxThreads = 1024;  // inside one operator

// Returns the fields of a JSON object. Throws c10::Error with "1:12: not valid JSON: …" if the text is none, and if a key
// stands there twice.
nlohmann::json parse_options(const std::string& text);

// `disabled_passes` may name passes of plug-ins, which are opened first.
enum class OptionFields { kAllButDisabledPasses, kDisabledPasses };

// Sets fields. Throws c10::Error for an unknown key, with the nearest ones, and for a value of another kind.
void set_options(Options& options, const nlohmann::json& fields, OptionFields which);

// The keys that there are.
std::vector<std::string> option_keys();

}  // namespace sconce
