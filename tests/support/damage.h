// Mistakes in bytes, for tests of what reads them.
#pragma once

#include <cstddef>
#include <random>
#include <string>

namespace sconce::testing {

using Random = std::mt19937_64;

// A number below `bound`; 0 for 0.
inline size_t below(Random& random, size_t bound) { return bound == 0 ? 0 : random() % bound; }

// One to four mistakes between `begin` and `end`: bytes changed, taken out, doubled, set to extremes, or pieces moved.
void damage(std::string& bytes, size_t begin, size_t end, Random& random);

}  // namespace sconce::testing
