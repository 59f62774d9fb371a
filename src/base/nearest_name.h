// Suggestions for misspelled names.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace sconce {

// Returns the names nearest to `name` by edit distance, best first, at most `limit`. Leaves out names that have almost
// nothing in common with it.
std::vector<std::string> nearest_names(std::string_view name, const std::vector<std::string>& names, size_t limit = 3);

// Returns "; did you mean 'forward' or 'forward_once'?", or "; there are: a, b, c" if no name is near, or an empty string if
// there are no names.
std::string did_you_mean(std::string_view name, const std::vector<std::string>& names);

// "a, b, c"
std::string join(const std::vector<std::string>& parts, std::string_view separator = ", ");

}  // namespace sconce
