// The file of --options: fields of sconce::Options as JSON.
#pragma once

#include "report/options_json.h"

#include <nlohmann/json_fwd.hpp>

#include <string>

namespace sconce::cli {

// Returns the fields that the file has. Throws UserError if it is not a JSON object, or has a key twice.
nlohmann::json read_options_file(const std::string& path);

// Sets the fields of the file at `path`. Throws UserError for an unknown key and for a value of another kind.
void set_options(Options& options, const nlohmann::json& fields, OptionFields which, const std::string& path);

}  // namespace sconce::cli
