// What running a node does besides giving its outputs.
#pragma once

#include "ir/graph.h"

namespace sconce {

struct Effects {
  bool writes = false;    // memory or objects that others may see
  bool random = false;    // takes from a random number generator (rule R5: an effect chain, never removed or reordered)
  bool external = false;  // prints, warns, raises, waits for others
  bool state = false;     // changes what operators see beside their operands: grad mode, seeds, files, …
  bool unknown = false;   // nothing is known: as if all of these

  bool any() const { return writes || random || external || state || unknown; }
};

// Of the node alone, without the blocks nested in it. Unknown operators have unknown effects.
Effects effects_of(const Node& node);

// Whether the operator may write the memory of its operand `index`: its schema says so, as corrected (schema_corrections.h),
// and its other operands don't rule it out. Requires a schema.
bool may_write_operand(const Node& node, size_t index);

// Whether the results depend on the state of thread or process, and not on the operands alone.
bool reads_state(const Node& node);

// Whether the node walks autograd's graph of what the operators before it have computed. It tells two equal results apart.
bool differentiates(const Node& node);

// Whether running the node, or a node nested in it, may raise. False only for what is known not to.
bool may_raise(const Node& node);

// Whether the node must stay although nobody uses its outputs: it, or a node nested in it, has an effect.
bool has_effects(const Node& node);

}  // namespace sconce
