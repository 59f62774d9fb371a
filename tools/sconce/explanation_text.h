// What an executor tells about itself, for people and for programs.
#pragma once

#include "tools/sconce/json.h"

#include <sconce/explanation.h>

#include <string>

namespace sconce::cli {

// `with_steps`: the steps of every plan too.
std::string to_text(const Explanation& explanation, bool with_steps);
Json to_json(const Explanation& explanation);

}  // namespace sconce::cli
