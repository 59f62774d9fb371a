// Work in child processes, so that a crash fails one piece of work and not the test program.
#pragma once

#include <cstddef>
#include <functional>
#include <string>
#include <vector>

namespace sconce::testing {

// Passes a line to the parent.
using ReportLine = std::function<void(const std::string& line)>;
// `first`: where to go on in this piece after a crash.
using PieceWork = std::function<void(size_t piece, size_t first, const ReportLine& report)>;

struct PieceReport {
  std::vector<std::string> lines;
  // What the work did at each crash or time-out.
  std::vector<std::string> crashes;
};

// Does pieces 0 to `count` - 1, one after the other. A line "@ POSITION TEXT" says what the work does next, and is not
// reported. If the child then crashes, or computes for more than `seconds`, `crashes` of the piece gets the text, and the
// piece goes on from POSITION + 1 in a new child.
std::vector<PieceReport> run_in_children(size_t count, unsigned seconds, const PieceWork& work);

}  // namespace sconce::testing
