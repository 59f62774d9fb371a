// The file of --options: fields of sconce::Options as JSON.
#pragma once

#include <sconce/options.h>

#include <nlohmann/json_fwd.hpp>

#include <string>
#include <string_view>
#include <vector>

namespace sconce::cli {

// Returns the fields that the file has. Throws UserError if it is not a JSON object, or has a key twice.
nlohmann::json read_options_file(const std::string& path);

// `disabled_passes` may name passes of plug-ins, which are opened first.
enum class OptionFields { kAllButDisabledPasses, kDisabledPasses };

// Sets the fields of the file at `path`. Throws UserError for an unknown key and for a value of another kind.
void set_options(Options& options, const nlohmann::json& fields, OptionFields which, const std::string& path);

// The keys that a file may have.
std::vector<std::string> option_keys();

}  // namespace sconce::cli
