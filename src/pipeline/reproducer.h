// Reproducers: files with everything needed to see a pass fail again.
#pragma once

#include "ir/graph.h"

#include <memory>
#include <string>

namespace sconce {

struct Reproducer {
  std::string pass;
  std::string library;           // the plug-in that has the pass; empty for sconce's own and for a program's functions
  std::string problem;           // what was wrong, one line
  std::unique_ptr<Graph> graph;  // before the pass
};

// Writes sconce-PASS-PID-N.ir into the folder (graph_file.h) and returns its path. Throws c10::Error if a file cannot be
// written.
std::string write_reproducer(const Reproducer& reproducer, const std::string& folder);

// Reads a reproducer. Throws c10::Error with one line that begins with the path, or with the place in the text.
Reproducer read_reproducer(const std::string& path);

}  // namespace sconce
