// Listings of a page, without what its reader knows.
#pragma once

#include <string>

namespace sconce::testing {

// Returns the listing; of more than eight lines, the first five and the last two.
std::string shortened(const std::string& listing);

// Returns the lines that only `before` has, after a "-", and those that only `after` has, after a "+". "…" stands for lines
// that both have, and for the middle of more than eight lines with one sign. Indentation and numbers of values (%12) make no
// difference.
std::string difference(const std::string& before, const std::string& after);

}  // namespace sconce::testing
