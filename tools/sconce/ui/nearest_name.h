// What the user may have meant.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace sconce::ui {

// The names nearest to `name` by edit distance, best first, at most `limit`; those that share next to nothing with it
// are left out.
std::vector<std::string> nearest_names(std::string_view name, const std::vector<std::string>& names, size_t limit = 3);

// "; did you mean 'forward' or 'forward_once'?", or "; there are: a, b, c" when nothing is near, or empty when there is
// nothing at all.
std::string did_you_mean(std::string_view name, const std::vector<std::string>& names);

// "a, b, c"
std::string join(const std::vector<std::string>& parts, std::string_view separator = ", ");

}  // namespace sconce::ui
