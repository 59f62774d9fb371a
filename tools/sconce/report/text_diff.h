// What changed from one graph's text to another's.
#pragma once

#include <cstddef>
#include <string>
#include <vector>

namespace sconce::cli {

struct DiffLine {
  enum class Kind { kSame, kGone, kNew };
  Kind kind;
  std::string before;  // empty when new
  std::string after;   // empty when gone
};

// The lines of both texts in order. Lines are the same if they are but for the source location and the numbers of nameless
// values, as long as they use the same values. Of changed pieces without a line that is unique in both texts, and too long
// to be compared line by line, all lines are gone and new. Algorithm: patience diff (B. Cohen), which keeps the longest
// increasing run of lines that are unique on both sides; between them the longest common subsequence by dynamic programming.
std::vector<DiffLine> diff_texts(const std::string& before, const std::string& after);

// In the unified format, without file names: hunks of changed lines with `context` lines around them. Empty when nothing
// changed.
std::string unified_diff(const std::vector<DiffLine>& lines, size_t context = 3);

// Where the source location of a line of IR begins; its length if it has none.
size_t end_of_code(const std::string& line);

}  // namespace sconce::cli
