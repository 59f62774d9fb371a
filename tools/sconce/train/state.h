// All that a training step changes: a module's attributes and the optimizer's state.
#pragma once

#include <ATen/core/Dict.h>
#include <ATen/core/Tensor.h>
#include <ATen/core/ivalue.h>

#include <string>

namespace torch::jit {
struct Module;
}
namespace torch::optim {
class Optimizer;
}

namespace sconce::cli {

struct TrainState {
  // Parameters, buffers and other attributes by name, "encoder.weight". Without objects, which are not restored: those of
  // script classes and of custom C++ classes.
  c10::impl::GenericDict module;
  at::Tensor optimizer;  // the bytes of an archive of LibTorch's
};

// Tensors of the state are on the CPU. Shares those of a module on the CPU; copies the optimizer's state.
TrainState state_of(const torch::jit::Module& module, torch::optim::Optimizer& optimizer);

// Returns a state that shares no tensor with the module.
TrainState copy_of(const TrainState& state);

// Brings the state back, but for the optimizer's options, which stay as they are. Writes into the module's tensors, so that
// they stay the same objects. Throws UserError if the state is that of another module: a name is missing, or a tensor has
// other sizes or another dtype.
void restore(const TrainState& state, torch::jit::Module& module, torch::optim::Optimizer& optimizer);

}  // namespace sconce::cli
