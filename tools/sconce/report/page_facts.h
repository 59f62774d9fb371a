// What a page says about the machine on which its numbers were measured.
#pragma once

#include <string>
#include <utility>
#include <vector>

namespace sconce::cli {

// The settings and the machine, as names and values.
using PageFacts = std::vector<std::pair<std::string, std::string>>;

// The date, the processor and its threads, as they are now. `versions` as `sconce --version` prints them.
PageFacts facts_of_this_machine(const std::string& versions);

}  // namespace sconce::cli
