// Differentiable subgraphs of a plan and operators outside of them, as text and as JSON.
#pragma once

#include "tools/sconce/report/explanation_text.h"
#include "tools/sconce/report/json.h"

#include <sconce/explanation.h>

#include <string>

namespace sconce::cli {

// Returns how many operators differentiable subgraphs have, the subgraphs, and why other operators are in none.
std::string gradients_to_text(const GradientExplanation& gradients, const ExplanationDetail& detail);
Json to_json(const GradientExplanation& gradients);

}  // namespace sconce::cli
