// Facts that an analysis claims, against those of a tensor that a run made.
#pragma once

#include "ir/facts.h"

#include <map>

namespace sconce::testing {

// The number that each symbol has stood for so far.
using SymbolNumbers = std::map<int64_t, Dim>;

// Whether something that is claimed was not so: numbers must be those seen, and a symbol stand for one number wherever it
// stands. Sizes of which nothing is known in `seen` (they changed from iteration to iteration) say nothing about symbols.
bool contradict(const TensorFacts& claimed, const TensorFacts& seen, SymbolNumbers& symbols);

}  // namespace sconce::testing
