// Attributes of a frozen module, replaced by constants.
#pragma once

#include "passes/freeze/module_constants.h"

#include <sconce/explanation.h>

#include <vector>

namespace sconce {

// Replaces every read of a constant attribute by the constant, if the object it is read from is known: the module, or a
// submodule read from it. Inlines calls of interface methods that become known, and removes reads of submodules that become
// unused.
//
// Requires: a method or hook of the module, whose first input is the module, with its calls inlined.
// Frozen attributes take no gradient. Returns whether the graph changed.
bool freeze(Graph& method, const ModuleConstants& constants);

// Returns the attributes that a frozen method still reads although the user did not ask to preserve them, with the reasons.
// Attributes with one reason are listed together.
std::vector<RefusalExplanation> attributes_not_frozen(const Graph& method, const ModuleConstants& constants);

}  // namespace sconce
