// The slices of a trace in the JSON format of Chrome and Perfetto.
#pragma once

#include <cstdint>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

namespace sconce::testing {

struct Slice {
  std::string name;
  std::string category;
  int64_t thread;
  int64_t begin;  // in nanoseconds
  int64_t end;
  nlohmann::json arguments;
  std::vector<std::string> around;  // the names of the slices that contain it, the outermost first
};

// Parses a trace. Expects that two slices of a thread are disjoint, or that one contains the other.
std::vector<Slice> slices_of(const std::string& json);

// The slices of that name.
std::vector<Slice> named(const std::vector<Slice>& slices, const std::string& name);

}  // namespace sconce::testing
