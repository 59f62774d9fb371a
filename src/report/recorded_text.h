// Ranges of a plan that a device records and replays, as text and as JSON.
#pragma once

#include "report/json.h"

#include <sconce/explanation.h>

#include <string>
#include <vector>

namespace sconce {

// Returns for each range what it has, how often it was recorded and replayed, and why runs did without.
std::string recorded_to_text(const std::vector<RecordedExplanation>& ranges);
Json json_of(const std::vector<RecordedExplanation>& ranges);

}  // namespace sconce
