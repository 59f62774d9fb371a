// The resident memory of this process.
#pragma once

#include <malloc.h>
#include <unistd.h>

#include <fstream>

namespace sconce::cli {

// Returns resident memory in bytes, after the allocator returned unused pages.
inline double resident_bytes() {
  malloc_trim(0);
  std::ifstream statm("/proc/self/statm");
  double all = 0;
  double resident = 0;
  statm >> all >> resident;
  return resident * static_cast<double>(sysconf(_SC_PAGESIZE));
}

}  // namespace sconce::cli
