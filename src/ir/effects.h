// What running a node does besides giving its outputs.
#pragma once

#include "ir/graph.h"

namespace sconce {

struct Effects {
  bool writes = false;    // memory or objects that others may see
  bool random = false;    // takes from a random number generator (rule R5: an effect chain, never removed or reordered)
  bool external = false;  // prints, warns, raises, changes thread or process state, waits for others
  bool unknown = false;   // nothing is known: as if all of these

  bool any() const { return writes || random || external || unknown; }
};

// Of the node alone, without the blocks nested in it. Unknown operators have unknown effects.
Effects effects_of(const Node& node);

// Whether the node must stay although nobody uses its outputs: it, or a node nested in it, has an effect.
bool has_effects(const Node& node);

}  // namespace sconce
