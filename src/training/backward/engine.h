// Where LibTorch's engine and sconce's backward meet.
#pragma once

#include <torch/csrc/autograd/engine.h>

#include <memory>

namespace sconce {

class BackwardPrograms;

// The programs that run the backwards of this thread; null: the engine runs them. The first call has LibTorch ask sconce in
// each backward of the process from then on.
BackwardPrograms* set_backward_programs(BackwardPrograms* programs);

// Runs a backward that has not begun, as if sconce had not been asked.
torch::autograd::variable_list run_backward_by_engine(const std::shared_ptr<torch::autograd::Node>& root,
                                                      const torch::autograd::GraphTask& task);

}  // namespace sconce
