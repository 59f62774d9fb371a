// What the passes for the caller's autocast make of graphs, beside LibTorch's interpreter under autocast.
#pragma once

#include "ir/graph.h"
#include "passes/simplify/propagate_facts.h"

#include <ATen/core/ivalue.h>

#include <string>
#include <vector>

namespace sconce::testing {

inline const CallersAutocast kBFloat16 = {.dtype = at::kBFloat16};

// Compares the graph with a text, and verifies it.
void expect_text(const Graph& graph, const std::string& expected);

// Runs a graph whose casts are explicit in a plan without autocast, and the graph before the passes as LibTorch does in a
// region of autocast to bfloat16. Compares the results.
void expect_results_under_autocast(const std::string& before, const Graph& after, const std::vector<c10::IValue>& arguments);

}  // namespace sconce::testing
