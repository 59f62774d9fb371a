// The difference of two graphs in text form.
#pragma once

#include <cstddef>
#include <string>
#include <vector>

namespace sconce::cli {

struct DiffLine {
  enum class Kind { kSame, kGone, kNew };
  Kind kind;
  std::string before;  // empty for a new line
  std::string after;   // empty for a removed line
};

// Returns the lines of both texts in order. Two lines are equal if they differ only in the source location and in the
// numbers of values without a name, and use the same values.
//
// The algorithm is patience diff (B. Cohen): it keeps the longest increasing run of lines that are unique in both texts, and
// between them the longest common subsequence, found by dynamic programming. If a changed piece has no unique line and is
// too long for that, all its lines count as removed and new.
std::vector<DiffLine> diff_texts(const std::string& before, const std::string& after);

// Returns the unified format without file names: hunks of changed lines with `context` lines around them. Empty if nothing
// changed.
std::string unified_diff(const std::vector<DiffLine>& lines, size_t context = 3);

// Returns where the source location in a line of IR begins; the line's length if it has none.
size_t end_of_code(const std::string& line);

}  // namespace sconce::cli
