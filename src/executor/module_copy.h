// Copies of modules.
#pragma once

#include <torch/csrc/jit/api/module.h>

namespace sconce {

// Returns a module of the same class, with submodules, containers and tensors of its own, each copied once: what two
// attributes share, their copies share. Parameters are the same tensors if `shares_weights`, else leaves that require a
// gradient where the originals do. Buffers and other tensors are always copied, with their strides.
torch::jit::Module copy_of(const torch::jit::Module& module, bool shares_weights);

// Gives the module parameters of its own, also where lists and dicts hold them. What attributes share (tied weights) they
// share again.
void copy_parameters(torch::jit::Module& module);

}  // namespace sconce
