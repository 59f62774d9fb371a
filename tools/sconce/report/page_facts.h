// What a report says about the program and the machine that measured its numbers.
#pragma once

#include "report/json.h"

#include <string>
#include <utility>
#include <vector>

namespace sconce::cli {

struct MachineFacts {
  std::string sconce;     // its version
  std::string libtorch;   // its version
  std::string compiler;   // of sconce
  std::string date;       // of the report: "2026-11-30 01:12 UTC"
  std::string processor;  // as the system calls it
  unsigned threads = 0;   // of the hardware
  int usable_cores = 0;   // that the process may use
  std::string kernels;    // the instruction set of LibTorch's kernels
};

MachineFacts facts_of_this_machine();

// Returns the facts as names and values, for a page.
using PageFacts = std::vector<std::pair<std::string, std::string>>;
PageFacts rows_of(const MachineFacts& facts);
Json to_json(const MachineFacts& facts);

}  // namespace sconce::cli
