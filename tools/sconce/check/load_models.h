// Loads the model of a check, in the mode that the check asks for.
#pragma once

#include "tools/sconce/check/check_cases.h"

#include <sconce/module.h>

#include <torch/csrc/jit/api/module.h>

#include <string>

namespace sconce::cli {

Module load_checked(const CheckSettings& settings);
// The same model in LibTorch.
torch::jit::Module load_reference(const CheckSettings& settings);

// Returns why recorded answers are not those of the calls: autocast is on, or a submodule is in another mode than it was
// saved in. Empty if they are.
std::string why_unlike_recorded(const CheckSettings& settings);

}  // namespace sconce::cli
