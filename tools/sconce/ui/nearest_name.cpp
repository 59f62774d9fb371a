#include "tools/sconce/ui/nearest_name.h"

#include <algorithm>
#include <numeric>

namespace sconce::ui {
namespace {

// Levenshtein's distance, one row at a time.
size_t edit_distance(std::string_view a, std::string_view b) {
  std::vector<size_t> row(b.size() + 1);
  std::iota(row.begin(), row.end(), 0);
  for (size_t i = 1; i <= a.size(); ++i) {
    size_t diagonal = row[0];
    row[0] = i;
    for (size_t j = 1; j <= b.size(); ++j) {
      const size_t substitute = diagonal + (a[i - 1] == b[j - 1] ? 0 : 1);
      diagonal = row[j];
      row[j] = std::min({substitute, row[j] + 1, row[j - 1] + 1});
    }
  }
  return row.back();
}

// A beginning or part of a name is near, however much is missing.
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
  constexpr size_t kMostListed = 20;
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
  const bool all = names.size() <= kMostListed;
  return "; there are: " + join({names.begin(), all ? names.end() : names.begin() + kMostListed}) + (all ? "" : ", ...");
}

std::string join(const std::vector<std::string>& parts, std::string_view separator) {
  std::string joined;
  for (const std::string& part : parts) {
    joined += (joined.empty() ? "" : std::string(separator)) + part;
  }
  return joined;
}

}  // namespace sconce::ui
