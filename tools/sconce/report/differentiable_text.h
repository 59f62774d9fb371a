// Differentiable subgraphs as text for people and as JSON for programs.
#pragma once

#include "report/json.h"
#include "tools/sconce/commands/differentiated_plan.h"
#include "tools/sconce/report/dump_page.h"

#include <string>

namespace sconce::cli {

// Returns comment lines for the head of a graph's text: of each subgraph where it begins, the names of f and df in the text,
// and the saved values.
std::string describe_subgraphs(const DifferentiatedPlan& plan);
// Returns f, the saved values and df of each subgraph, for columns of a page.
std::vector<SubgraphColumns> columns_of(const DifferentiatedPlan& plan);
Json to_json(const DifferentiatedPlan& plan);

}  // namespace sconce::cli
