// The page that `sconce bench --html` writes. It is self-contained: no network, no scripts.
#pragma once

#include "tools/sconce/bench/bench_report.h"
#include "tools/sconce/report/page_facts.h"

#include <string>
#include <vector>

namespace sconce::cli {

// HTML with inline CSS and SVG, light or dark as the reader's system is: the facts; of several models the geometric means;
// for each model a table of its executors and plots of their first calls and of the percentiles of their steady calls.
std::string to_page(const std::vector<BenchedModel>& models, const MachineFacts& facts);

}  // namespace sconce::cli
