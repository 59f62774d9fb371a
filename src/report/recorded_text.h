// Ranges of a plan that a device records and replays, as text and as JSON.
#pragma once

#include "tools/sconce/report/json.h"

#include <sconce/explanation.h>

#include <string>
#include <vector>

namespace sconce::cli {

// Returns for each range what it has, how often it was recorded and replayed, and why runs did without.
std::string recorded_to_text(const std::vector<RecordedExplanation>& ranges);
Json to_json(const std::vector<RecordedExplanation>& ranges);

}  // namespace sconce::cli
