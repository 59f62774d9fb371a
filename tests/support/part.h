// Long sweeps do a part of their cases in `make test` and all of them in `make soak`.
#pragma once

#include <cstdint>
#include <cstdlib>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

namespace sconce::testing {

// Every `count`-th case, from the `index`-th on.
struct Part {
  uint64_t index = 0;
  uint64_t count = 1;
  bool has(uint64_t number) const { return number % count == index; }
};

// Returns the part that this run does: SCONCE_PART=INDEX/COUNT, everything if it isn't set. Throws std::invalid_argument on
// other text.
inline Part part_of_run() {
  const char* const text = std::getenv("SCONCE_PART");
  if (text == nullptr || *text == '\0') {
    return {};
  }
  size_t end = 0;
  Part part;
  part.index = std::stoull(text, &end);
  if (text[end] != '/') {
    throw std::invalid_argument(std::string("SCONCE_PART is INDEX/COUNT, not ") + text);
  }
  part.count = std::stoull(text + end + 1);
  if (part.index >= part.count) {
    throw std::invalid_argument(std::string("SCONCE_PART's INDEX is less than its COUNT, unlike ") + text);
  }
  return part;
}

// Returns those of the cases that are in the part.
template <typename Case>
std::vector<Case> in_part(std::vector<Case> cases) {
  const Part part = part_of_run();
  std::vector<Case> found;
  for (size_t i = 0; i < cases.size(); ++i) {
    if (part.has(i)) {
      found.push_back(std::move(cases[i]));
    }
  }
  return found;
}

struct Seeds {
  uint64_t first;
  uint64_t count;
  uint64_t end() const { return first + count; }
};

// Returns the seeds of the part among `all`: those that lie side by side.
inline Seeds seeds_in_part(Seeds all) {
  const Part part = part_of_run();
  const uint64_t begin = all.count * part.index / part.count;
  return {all.first + begin, all.count * (part.index + 1) / part.count - begin};
}

}  // namespace sconce::testing
