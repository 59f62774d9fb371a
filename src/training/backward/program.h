// BackwardProgram: a recorded backward, ready to run for others like it.
#pragma once

#include "executor/compiled_trace.h"
#include "trace/sizes/symbolic_sizes.h"
#include "trace/trace_key.h"
#include "training/backward/walk.h"

#include <memory>
#include <optional>
#include <vector>

namespace sconce {

// The work that a call of the walk does on the host, in the engine's order.
enum class HostAction : uint8_t {
  kTensorHooks,  // of a gradient that is returned, and goes no further
  kHooksBefore,
  kNode,  // the formula of a node that is not recorded
  kHooksAfter,
  kLeaf  // adds the gradient to a leaf's, with all hooks of the leaf
};

// A gradient of a run, by its number. None: it is undefined.
using Slot = std::optional<size_t>;
using Slots = std::vector<Slot>;

// Slots that wait for a call of the walk.
struct WaitingGradients {
  size_t call;
  Slots slots;
};

struct HostCall {
  HostAction code;
  size_t call;   // of the walk
  Slots given;   // what the code takes
  Slots before;  // kHooksAfter: what the node took
  Slots results;
  TraceKey outcome;                       // of the results, without their sizes
  std::vector<Dim> outcome_sizes;         // of all results; an unknown one may be any
  std::vector<WaitingGradients> waiting;  // besides; what the calls after this one take
};

// A graph, then a call of host code.
struct BackwardStage {
  std::shared_ptr<Program> graph;  // null: there is nothing to compute
  std::vector<size_t> sizes;       // symbols that the graph takes
  std::vector<size_t> saved;       // tensors of the walk that it takes after them
  std::vector<size_t> taken;       // slots that it takes after them
  std::vector<size_t> given;       // slots of its outputs
  std::optional<HostCall> host;
};

// Where a gradient goes after the last stage: to a leaf, or to the caller of autograd::grad.
struct GradientTarget {
  bool is_leaf;
  size_t index;  // of the call of a leaf, or of the result that is returned
  size_t slot;
};

struct BackwardProgram {
  std::vector<BackwardStage> stages;
  std::vector<GradientTarget> targets;
  size_t slots = 0;
  std::shared_ptr<const SymbolicSizes> symbols;  // null: the program is of one size
};

// Runs a program for the walk of another backward, in which the symbols are `symbols`. Returns the gradients that were asked
// for, `results` of them. Host code may act in another way than when it was recorded. The calls that are left then run as
// the engine would run them.
torch::autograd::variable_list run(const BackwardProgram& program, const BackwardSchedule& walk,
                                   const std::vector<int64_t>& symbols, size_t results, bool keeps_graph);

// Ends a run: nodes forget what they have saved, leaves and the caller get their gradients. `first_eager`: the calls from
// this one on have run as the engine runs them, and have given theirs.
void finish_run(const BackwardProgram& program, const BackwardSchedule& walk, torch::autograd::variable_list& slots,
                torch::autograd::variable_list& results, bool keeps_graph, size_t first_eager = SIZE_MAX);
// Runs the code of a call. `before`: see HostCall.
torch::autograd::variable_list run_host_action(HostAction code, torch::autograd::Node& node,
                                               torch::autograd::variable_list given,
                                               const torch::autograd::variable_list& before, bool keeps_graph);

}  // namespace sconce
