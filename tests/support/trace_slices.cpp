#include "tests/support/trace_slices.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <tuple>

namespace sconce::testing {

std::vector<Slice> slices_of(const std::string& json) {
  const nlohmann::json trace = nlohmann::json::parse(json);
  std::vector<Slice> slices;
  for (const nlohmann::json& event : trace["traceEvents"]) {
    if (event["ph"] == "X") {
      const auto nanoseconds = [&](const char* key) { return std::llround(event[key].get<double>() * 1000); };
      slices.push_back({event["name"],
                        event["cat"],
                        event["tid"],
                        nanoseconds("ts"),
                        nanoseconds("ts") + nanoseconds("dur"),
                        event["args"],
                        {}});
    } else {
      EXPECT_EQ(event["ph"], "M");
    }
  }
  // A run comes after its step, and a step after its iteration, if they begin together.
  std::stable_sort(slices.begin(), slices.end(), [](const Slice& a, const Slice& b) {
    return std::tuple(a.thread, a.begin, -a.end) < std::tuple(b.thread, b.begin, -b.end);
  });
  std::vector<const Slice*> open;
  for (Slice& slice : slices) {
    while (!open.empty() && (open.back()->thread != slice.thread || open.back()->end <= slice.begin)) {
      open.pop_back();
    }
    for (const Slice* outer : open) {
      slice.around.push_back(outer->name);
    }
    EXPECT_TRUE(open.empty() || slice.end <= open.back()->end) << slice.name << " crosses the end of " << open.back()->name;
    open.push_back(&slice);
  }
  return slices;
}

std::vector<Slice> named(const std::vector<Slice>& slices, const std::string& name) {
  std::vector<Slice> found;
  std::copy_if(slices.begin(), slices.end(), std::back_inserter(found),
               [&](const Slice& each) { return each.name == name; });
  return found;
}

}  // namespace sconce::testing
