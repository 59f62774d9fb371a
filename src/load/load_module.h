// Reading a model file.
#pragma once

#include <c10/core/Device.h>

#include <optional>
#include <string>
#include <vector>

namespace c10 {
struct IValue;
}
namespace torch::jit {
struct Module;
}

namespace sconce {

// The module that `torch.jit.save` wrote, its tensors on `device` (as saved when absent).
// Throws c10::Error with one line that begins with the path.
torch::jit::Module load_script_module(const std::string& path, std::optional<c10::Device> device);

// The arguments that `torch.save((arg, ...), path)` wrote; a single value is one argument.
// Throws c10::Error with one line that begins with the path.
std::vector<c10::IValue> load_arguments(const std::string& path);

}  // namespace sconce
