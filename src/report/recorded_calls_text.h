// What is said of calls that were recorded with their backward.
#pragma once

#include "report/json.h"

#include <sconce/explanation.h>

#include <string>

namespace sconce {

// Returns nothing if no call was recorded.
std::string recorded_calls_text(const Explanation::Recorded& recorded);
// Without the plans.
Json recorded_calls_json(const Explanation::Recorded& recorded);

}  // namespace sconce
