// What sconce does in the whole process, and what it can do there: for logs, dashboards and reports of problems.
#pragma once

#include <sconce/explanation.h>

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

namespace sconce {

// All methods of one name in the process, also those of modules that are destroyed: the counters of a model that is loaded
// again and again add up.
struct MethodStatus {
  std::string method;   // "Net.forward", a class and its method; a function's name
  size_t programs = 0;  // that exist now; modules that share plans have one
  Counters counters;    // sums; `clear_cache` does not reset them
};

struct Status {
  std::vector<MethodStatus> methods;  // those that were called or loaded, in the order of their names
  size_t packed_bytes = 0;            // copies of weights in the order in which kernels read them
  size_t arena_bytes = 0;             // memory that plans keep for the tensors of their runs
  size_t compiles_waiting = 0;        // for the thread that compiles, the one that it does included
};

// Returns the sums of counters that calls keep anyway: calls go on undisturbed. Any thread may ask.
Status status();
std::string to_text(const Status& status);
std::string to_json(const Status& status);
// Returns the text format of Prometheus: `sconce_calls_total{method="Net.forward"} 17`.
std::string to_prometheus(const Status& status);

struct Capabilities {
  std::string sconce;     // its version
  std::string libtorch;   // the version of the LibTorch in this process, the one that sconce was built for
  std::string compiler;   // that compiled sconce
  std::string processor;  // as the system calls it
  std::string vectors;    // of LibTorch's kernels, which sconce's follow: "AVX512"
  unsigned hardware_threads = 0;
  int usable_cores = 0;        // that the process may use
  std::string why_no_kernels;  // why models run without compiled kernels; empty if they are compiled
  std::string why_no_cuda;     // why no model can run on a GPU; empty if it can
};

// Loads the code generator and CUDA's libraries, as the first compile would.
Capabilities capabilities();
std::string to_text(const Capabilities& capabilities);
std::string to_json(const Capabilities& capabilities);

}  // namespace sconce
