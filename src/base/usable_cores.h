// The number of cores that the process may use.
#pragma once

#include <filesystem>

namespace sconce {

// Returns how many cores the process may use, at least 1: those it may run on, and no more than its quota of CPU time,
// rounded up.
int usable_cores();

// Returns whether a quota leaves the process fewer cores than it may run on.
bool has_cpu_quota();

// Returns the least quota of a process's cgroup and of those that it lies in, in cores; infinity if there is none.
// `root`: /sys/fs/cgroup. `membership`: the process's /proc/self/cgroup.
double cpu_quota(const std::filesystem::path& root, const std::filesystem::path& membership);

}  // namespace sconce
