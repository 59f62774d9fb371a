// The option --device.
#pragma once

#include <c10/core/Device.h>

#include <string>

namespace sconce::cli {

// Parses "cpu", "cuda" or "cuda:1". Throws UserError for anything else.
c10::Device parse_device(const std::string& name);

// Loads the libraries of the device and checks that it exists. Throws UserError with the reason if it does not. For CUDA
// this must be called before the first tensor is made (rule R9).
void make_available(const c10::Device& device);

}  // namespace sconce::cli
