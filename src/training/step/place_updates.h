// place_updates: the optimizer's updates in the graph of a training step.
//
//   %g : Tensor = aten::mm(%x, %d)                 %g : Tensor = aten::mm(%x, %d)
//   %e : Tensor = aten::mm(%d, %w)                 %e : Tensor = aten::mm(%d, %w)
//   …                                      →       sconce::kernel() …  writes %w and its states from %g
//   -> (%loss, %g)                                 …
//                                                  -> (%loss)
//
// An update stands as early as it may: the memory of its gradient is free from then on. Nothing after the first update may
// raise because of elements: a step that fails has written no parameter.
#pragma once

#include "pipeline/pass_runner.h"
#include "training/clipping.h"
#include "training/update_rule.h"

#include <ATen/core/ivalue.h>

#include <cstddef>
#include <vector>

namespace sconce {

// The updates of a step, by positions in the calling convention of its graph.
struct StepUpdates {
  struct Group {
    unsigned variant;     // of the rule
    size_t first_number;  // the input that is the first of Update::numbers
  };
  struct OfParameter {
    size_t group;
    size_t param;              // the input
    size_t gradient;           // the output
    size_t first_state;        // the input that is the first of Update::states
    size_t first_step_number;  // the input that is the first of Update::step_numbers
    size_t bytes = 0;          // of the gradient
  };
  const UpdateRule* rule = nullptr;
  std::vector<Group> groups;
  std::vector<OfParameter> parameters;
  Clipping clipping;  // with a norm, the last output is the factor of the gradients
  size_t kept = 1;    // how many outputs stay: the loss, and others after it
};

// Puts the updates into the graph, whose only outputs are then those that stay. Requires that no other input shares memory
// with a parameter or a state. `has_kernels`: an update is a kernel node where kernels may compute it. `gathered_bytes`:
// updates of so many bytes of gradients stand together, where the last of them may; a GPU runs them by one launch. 0: each
// stands alone.
void place_updates(Graph& graph, const StepUpdates& updates, bool has_kernels, bool is_exact, size_t gathered_bytes,
                   PassRunner& runner);

}  // namespace sconce
