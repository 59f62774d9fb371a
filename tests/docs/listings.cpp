#include "tests/docs/listings.h"

#include <algorithm>
#include <regex>
#include <sstream>
#include <vector>

namespace sconce::testing {
namespace {

using Lines = std::vector<std::string>;

constexpr size_t kLongest = 8;
constexpr size_t kFirst = 5;
constexpr size_t kLast = 2;

Lines lines_of(const std::string& text) {
  Lines lines;
  std::istringstream stream(text);
  for (std::string line; std::getline(stream, line);) {
    lines.push_back(line);
  }
  return lines;
}

// Returns the lines, each after the sign, without the middle of a long listing.
std::string ends_of(const Lines& lines, const std::string& sign) {
  std::string text;
  for (size_t i = 0; i < lines.size(); ++i) {
    if (lines.size() <= kLongest || i < kFirst || i + kLast >= lines.size()) {
      text += sign + lines[i] + "\n";
    } else if (i == kFirst) {
      text += sign + "…\n";
    }
  }
  return text;
}

// Returns the lines without what makes no difference.
Lines compared_parts(Lines lines) {
  const std::regex ignored("^ +|%[0-9]+");
  for (std::string& line : lines) {
    line = std::regex_replace(line, ignored, "");
  }
  return lines;
}

// Returns a table: of how many lines is the longest sequence that the lines from i and those from j have in common?
std::vector<std::vector<size_t>> common_lengths(const Lines& before, const Lines& after) {
  std::vector<std::vector<size_t>> table(before.size() + 1, std::vector<size_t>(after.size() + 1));
  for (size_t i = before.size(); i-- > 0;) {
    for (size_t j = after.size(); j-- > 0;) {
      table[i][j] = before[i] == after[j] ? table[i + 1][j + 1] + 1 : std::max(table[i + 1][j], table[i][j + 1]);
    }
  }
  return table;
}

}  // namespace

std::string shortened(const std::string& listing) { return ends_of(lines_of(listing), ""); }

std::string difference(const std::string& before, const std::string& after) {
  const Lines lines_before = lines_of(before);
  const Lines lines_after = lines_of(after);
  const Lines parts_before = compared_parts(lines_before);
  const Lines parts_after = compared_parts(lines_after);
  const auto common = common_lengths(parts_before, parts_after);
  std::string text;
  size_t i = 0;
  size_t j = 0;
  while (i < lines_before.size() || j < lines_after.size()) {
    const auto are_same = [&] {
      return i < lines_before.size() && j < lines_after.size() && parts_before[i] == parts_after[j];
    };
    if (are_same()) {
      text += "  …\n";
    }
    for (; are_same(); ++i, ++j) {
    }
    Lines removed;
    Lines added;
    while ((i < lines_before.size() || j < lines_after.size()) && !are_same()) {
      const bool removes = j == lines_after.size() || (i < lines_before.size() && common[i + 1][j] >= common[i][j + 1]);
      (removes ? removed : added).push_back(removes ? lines_before[i++] : lines_after[j++]);
    }
    text += ends_of(removed, "- ") + ends_of(added, "+ ");
  }
  return text;
}

}  // namespace sconce::testing
