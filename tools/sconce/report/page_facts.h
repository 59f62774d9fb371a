// What a report says about the program and the machine that measured its numbers.
#pragma once

#include "report/json.h"

#include <sconce/status.h>

#include <string>
#include <utility>
#include <vector>

namespace sconce::cli {

struct MachineFacts {
  Capabilities capabilities;
  std::string date;  // of the report: "2026-11-30 01:12 UTC"
};

MachineFacts facts_of_this_machine();

// Returns the facts as names and values, for a page.
using PageFacts = std::vector<std::pair<std::string, std::string>>;
PageFacts rows_of(const MachineFacts& facts);
Json to_json(const MachineFacts& facts);

}  // namespace sconce::cli
