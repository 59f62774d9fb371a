// Whether anybody can tell one tuple or text from another that is equal.
#pragma once

#include "ir/graph.h"

#include <functional>

namespace sconce {

// Of a tuple or a text nobody can tell more than which object it is, by `is`. Whether the graph asks that of any: passes
// that make such values anew, or one of two, then leave them alone. Code that is called and not looked at, and is given such
// a value, may ask; of the calls, those of which `is_seen` says that their code is looked at do not count.
bool observes_identity(const Graph& graph, const std::function<bool(const Node& call)>& is_seen = nullptr);
bool produces_tuple_or_string(const Node& node);

}  // namespace sconce
