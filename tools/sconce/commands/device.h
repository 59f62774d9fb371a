// --device.
#pragma once

#include <c10/core/Device.h>

#include <string>

namespace sconce::cli {

// "cpu", "cuda", "cuda:1". Throws UserError for anything else.
c10::Device parse_device(const std::string& name);

// Loads what the device needs and checks that it is there. Throws UserError with the reason when it is not. For CUDA this
// must come before the first tensor (LibTorch keeps its stubs for ever otherwise).
void make_available(const c10::Device& device);

}  // namespace sconce::cli
