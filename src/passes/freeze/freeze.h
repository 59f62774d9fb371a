// Reads of a module's attributes become constants.
#pragma once

#include "passes/freeze/module_constants.h"

#include <sconce/explanation.h>

#include <vector>

namespace sconce {

// Replaces each read of an attribute that is a constant by that constant, wherever the object is known: the module and its
// submodules, read one from another. Calls through interfaces that are known by that are inlined; reads of submodules of
// which nothing else is read go.
//
// Requires: a method or hook of the module, calls inlined, whose first input is the module. What is frozen takes no
// gradient. Returns whether the graph changed.
bool freeze(Graph& method, const ModuleConstants& constants);

// The attributes that a frozen method still reads although nobody asked for it, and why; those with one reason together.
std::vector<RefusalExplanation> attributes_not_frozen(const Graph& method, const ModuleConstants& constants);

}  // namespace sconce
