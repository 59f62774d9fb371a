// Loads modules whose weights can leave memory.
#pragma once

#include <c10/core/Device.h>

#include <optional>
#include <string>

namespace torch::jit {
struct Module;
}

namespace sconce {

// Loads a TorchScript module like torch::jit::load. Attributes that are large tensors on the CPU, and that the file has
// uncompressed, get PagedMemory: their pages can leave, and come back from the file.
torch::jit::Module load_with_paged_storages(const std::string& path, std::optional<c10::Device> device);

}  // namespace sconce
