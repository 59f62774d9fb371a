// The page that `sconce bench --html` writes. It is self-contained: no network, no scripts.
#pragma once

#include "tools/sconce/bench/bench_report.h"

#include <string>
#include <utility>
#include <vector>

namespace sconce::cli {

// The head of the page: the settings and the machine, as names and values.
using PageFacts = std::vector<std::pair<std::string, std::string>>;

// The date, the processor and its threads, as they are now. `versions` as `sconce --version` prints them.
PageFacts facts_of_this_machine(const std::string& versions);

// HTML with inline CSS and SVG, light or dark as the reader's system is: the facts; of several models the geometric means;
// for each model a table of its executors and plots of their first calls and of the percentiles of their steady calls.
std::string to_page(const std::vector<BenchedModel>& models, const PageFacts& facts);

}  // namespace sconce::cli
