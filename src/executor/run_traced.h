// Runs a graph while LibTorch's tracer records.
#pragma once

#include "ir/graph.h"

#include <ATen/core/stack.h>

#include <functional>

namespace sconce {

// Inserts `graph` into the outer trace, with its branches and loops; a trace of the run would contain only the operators
// that ran. Pauses the tracer, calls `run`, and binds the outputs to the values of the inserted graph. The stack has the
// graph's inputs on top, which `run` replaces by the outputs. Throws c10::Error, as LibTorch does, if an object among the
// inputs (usually the module) is not part of what is traced.
void run_traced(const Graph& graph, torch::jit::Stack& stack, const std::function<void(torch::jit::Stack&)>& run);

}  // namespace sconce
