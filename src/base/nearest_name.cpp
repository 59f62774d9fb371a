#include "base/nearest_name.h"

#include "base/edit_distance.h"

#include <algorithm>

namespace sconce {
namespace {

// A prefix or part of a name counts as near, however much is missing.
bool is_near(std::string_view name, const std::string& candidate) {
  const bool is_part = name.size() >= 3 && candidate.find(name) != std::string::npos;
  return is_part || edit_distance(name, candidate) <= std::max<size_t>(2, name.size() / 3);
}

}  // namespace

std::vector<std::string> nearest_names(std::string_view name, const std::vector<std::string>& names, size_t limit) {
  std::vector<std::string> near;
  std::copy_if(names.begin(), names.end(), std::back_inserter(near),
               [&](const auto& candidate) { return is_near(name, candidate); });
  std::stable_sort(near.begin(), near.end(),
                   [&](const auto& a, const auto& b) { return edit_distance(name, a) < edit_distance(name, b); });
  near.resize(std::min(near.size(), limit));
  return near;
}

std::string did_you_mean(std::string_view name, const std::vector<std::string>& names) {
  constexpr size_t kMaxListed = 20;
  const std::vector<std::string> near = nearest_names(name, names);
  if (!near.empty()) {
    std::vector<std::string> quoted;
    for (const std::string& candidate : near) {
      quoted.push_back("'" + candidate + "'");
    }
    return "; did you mean " + join(quoted, " or ") + "?";
  }
  if (names.empty()) {
    return "";
  }
  const bool all = names.size() <= kMaxListed;
  return "; there are: " + join({names.begin(), all ? names.end() : names.begin() + kMaxListed}) + (all ? "" : ", ...");
}

std::string join(const std::vector<std::string>& parts, std::string_view separator) {
  std::string joined;
  for (const std::string& part : parts) {
    joined += (joined.empty() ? "" : std::string(separator)) + part;
  }
  return joined;
}

}  // namespace sconce
