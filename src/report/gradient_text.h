// Differentiable subgraphs of a plan and operators outside of them, as text and as JSON.
#pragma once

#include "report/explanation_text.h"
#include "report/json.h"

#include <sconce/explanation.h>

#include <string>

namespace sconce {

// Returns how many operators differentiable subgraphs have, the subgraphs, and why other operators are in none.
std::string gradients_to_text(const GradientExplanation& gradients, const ExplanationDetail& detail);
Json json_of(const GradientExplanation& gradients);

}  // namespace sconce
