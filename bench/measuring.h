// What benchmarks share: how long they run, where models lie, and medians.
#pragma once

#include <algorithm>
#include <cstdlib>
#include <string>
#include <vector>

namespace sconce::bench {

// Returns whether the benchmark runs as a test, which takes few rounds.
inline bool is_smoke() { return std::getenv("SCONCE_BENCH_SMOKE") != nullptr; }

inline std::string model_file(const std::string& name) {
  const char* dir = std::getenv("SCONCE_MODELS_DIR");
  return std::string(dir != nullptr ? dir : "build/models") + "/" + name + ".pt";
}

// Returns the upper median of an even number of values. Requires at least one.
inline double median(std::vector<double> values) {
  const auto middle = values.begin() + static_cast<std::ptrdiff_t>(values.size() / 2);
  std::nth_element(values.begin(), middle, values.end());
  return *middle;
}

}  // namespace sconce::bench
