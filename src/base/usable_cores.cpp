#include "base/usable_cores.h"

#include <sched.h>

#include <algorithm>
#include <cmath>
#include <fstream>
#include <string>
#include <thread>

namespace sconce {
namespace {

constexpr double kNoQuota = HUGE_VAL;

// Returns the quota of one cgroup. Version 2 has "QUOTA PERIOD" or "max PERIOD" in one file, version 1 a number in each of
// two, with -1 for no quota.
double quota_of(const std::filesystem::path& group) {
  double quota = -1;
  double period = 0;
  if (!(std::ifstream(group / "cpu.max") >> quota >> period)) {
    quota = -1;
    std::ifstream(group / "cpu.cfs_quota_us") >> quota;
    std::ifstream(group / "cpu.cfs_period_us") >> period;
  }
  return quota > 0 && period > 0 ? quota / period : kNoQuota;
}

struct Cores {
  Cores() {
    cpu_set_t allowed;
    CPU_ZERO(&allowed);
    const bool is_known = sched_getaffinity(0, sizeof allowed, &allowed) == 0;  // it fails with more cores than the set has
    const int all = std::max(1, is_known ? CPU_COUNT(&allowed) : static_cast<int>(std::thread::hardware_concurrency()));
    const double quota = std::ceil(cpu_quota("/sys/fs/cgroup", "/proc/self/cgroup"));
    has_quota = quota < all;
    usable = has_quota ? static_cast<int>(quota) : all;
  }
  bool has_quota = false;
  int usable = 1;
};

const Cores& cores() {
  static const Cores read;
  return read;
}

}  // namespace

double cpu_quota(const std::filesystem::path& root, const std::filesystem::path& membership) {
  double least = kNoQuota;
  std::ifstream file(membership);
  for (std::string line; std::getline(file, line);) {  // "4:cpu,cpuacct:/path", or "0::/path" in version 2
    const size_t first = line.find(':');
    const size_t second = line.find(':', first + 1);
    if (second == std::string::npos) {
      continue;
    }
    const std::string controllers = "," + line.substr(first + 1, second - first - 1) + ",";
    const bool is_version_2 = controllers == ",,";
    if (!is_version_2 && controllers.find(",cpu,") == std::string::npos) {
      continue;
    }
    // A container may see its own cgroup as the root, and a path that exists only outside.
    const std::filesystem::path hierarchy = is_version_2 ? root : root / "cpu";
    std::filesystem::path path = line.substr(second + 1);
    for (; path.has_relative_path(); path = path.parent_path()) {
      least = std::min(least, quota_of(hierarchy / path.relative_path()));
    }
    least = std::min(least, quota_of(hierarchy));
  }
  return least;
}

int usable_cores() { return cores().usable; }

bool has_cpu_quota() { return cores().has_quota; }

}  // namespace sconce
