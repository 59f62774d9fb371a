// Running while LibTorch's tracer records.
#pragma once

#include "ir/graph.h"

#include <ATen/core/stack.h>

#include <functional>

namespace sconce {

// Runs and records: the outer trace gets `graph` as it is, with its branches and loops, where a trace of the run would hold
// only the operators that ran. The tracer is paused meanwhile, and the outputs are bound to the values of the inserted
// graph. `stack`: the graph's inputs on top, replaced by its outputs. `run` replaces them. Throws c10::Error, as LibTorch
// does, when an object among the inputs (the module, mostly) is not part of what is traced.
void run_traced(const Graph& graph, torch::jit::Stack& stack, const std::function<void(torch::jit::Stack&)>& run);

}  // namespace sconce
