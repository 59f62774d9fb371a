// Loads the model of a check, in the mode that the check asks for.
#pragma once

#include "tools/sconce/check/check_cases.h"

#include <sconce/module.h>

#include <torch/csrc/jit/api/module.h>

namespace sconce::cli {

Module load_checked(const CheckSettings& settings);
// The same model in LibTorch.
torch::jit::Module load_reference(const CheckSettings& settings);

// Returns whether a submodule is in another mode than it was saved in. Recorded answers then are of another mode.
bool changes_mode(const CheckSettings& settings);

}  // namespace sconce::cli
