// An executor's account of what it did and why. `sconce explain` prints it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace sconce {

// Since the executor was made (or `clear_cache`). Read while others run, the numbers are each right but not of one moment.
struct Counters {
  uint64_t invocations = 0;
  uint64_t cache_hits = 0;
  uint64_t cache_misses = 0;
  uint64_t compiles = 0;  // plans built
  uint64_t refusals = 0;  // things that could not be done, each listed in Explanation::refusals
  uint64_t evictions = 0;
};

// How far a plan is specialized.
//   kGeneric  not at all: one plan for all arguments. Runs every optimization that needs no knowledge of the arguments.
enum class Tier { kGeneric = 0 };

struct PlanExplanation {
  Tier tier = Tier::kGeneric;
  std::vector<std::string> specs;  // the argument specs that this plan serves, in words
  uint64_t runs = 0;
  size_t steps = 0;
  size_t registers = 0;
  size_t frames = 0;  // frames made for concurrent runs
  double compile_seconds = 0;
  std::string text;  // the steps, one a line, with the nodes and source lines they came from
};

struct RefusalExplanation {
  std::string what;  // what was refused: "pass my_pass", "freezing self.scale"
  std::string reason;
  std::string node;    // may be empty
  std::string source;  // "model.py:12:8 in Block.forward" lines, may be empty
};

// The recordings of profiled runs (Options::profiled_runs).
struct ProfileExplanation {
  struct Branch {
    std::string source;  // as in RefusalExplanation
    uint64_t taken = 0;
    uint64_t not_taken = 0;
  };
  struct Loop {
    std::string source;
    uint64_t reached = 0;
    uint64_t rounds = 0;  // iterations, summed over all times the loop was reached
  };
  uint64_t runs = 0;
  std::string graph;  // IR with the shapes that held in every run
  std::vector<Branch> branches;
  std::vector<Loop> loops;
};

struct PassTiming {
  std::string pass;
  double seconds = 0;
  bool changed = false;
};

struct Explanation {
  std::string method;
  size_t nodes = 0;  // nodes of the graph after inlining
  std::vector<PassTiming> passes;
  std::vector<PlanExplanation> plans;
  std::vector<RefusalExplanation> refusals;
  Counters counters;
  std::optional<ProfileExplanation> profile;  // when runs are profiled
};

}  // namespace sconce
