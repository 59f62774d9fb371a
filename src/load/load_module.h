// Reads model files.
#pragma once

#include <c10/core/Device.h>

#include <optional>
#include <string>
#include <unordered_map>
#include <vector>

namespace c10 {
struct IValue;
}
namespace torch::jit {
struct Module;
}

namespace sconce {

// Loads the module that `torch.jit.save` wrote. Its tensors go to `device`, or stay where they were saved if there is none.
// They are no inference tensors, also where the caller is in inference mode. `pages`: large weights have PagedMemory. Throws
// c10::Error with one line that begins with the path.
// `extra_files`: null, or names of files in the archive, which get their contents.
torch::jit::Module load_script_module(const std::string& path, std::optional<c10::Device> device, bool pages = false,
                                      std::unordered_map<std::string, std::string>* extra_files = nullptr);

// Loads the arguments that `torch.save((arg, ...), path)` wrote. A value that is not a tuple is one argument.
// Throws c10::Error with one line that begins with the path.
std::vector<c10::IValue> load_arguments(const std::string& path);

}  // namespace sconce
