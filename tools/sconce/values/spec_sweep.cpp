#include "tools/sconce/values/spec_sweep.h"

#include "tools/sconce/report/errors.h"

#include <algorithm>
#include <cctype>
#include <charconv>
#include <cstdint>
#include <optional>
#include <string_view>

namespace sconce::cli {
namespace {

constexpr size_t kMostCalls = 1000;

struct Range {
  size_t begin = 0;  // in the SPEC
  size_t end = 0;
  std::vector<int64_t> sizes;
};

bool is_digit(char c) { return std::isdigit(static_cast<unsigned char>(c)) != 0; }

[[noreturn]] void refuse(const std::string& spec, std::string_view range, const std::string& why) {
  throw UserError("--input '" + spec + "': " + std::string(range) + ": " + why +
                  "; a range of sizes is written like 1..64:x2, 1..64:+8 or 1..64");
}

// Takes a whole number from the front.
std::optional<int64_t> take_number(std::string_view& text) {
  int64_t number = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  if (error != std::errc() || !is_digit(text.front())) {
    return std::nullopt;
  }
  text.remove_prefix(static_cast<size_t>(end - text.data()));
  return number;
}

std::vector<int64_t> sizes_of(const std::string& spec, std::string_view range) {
  std::string_view rest = range;
  const auto from = take_number(rest);
  rest.remove_prefix(std::min(rest.size(), std::string_view("..").size()));
  const auto to = take_number(rest);
  bool multiplies = false;
  int64_t step = 1;
  if (rest.starts_with(":x") || rest.starts_with(":+")) {
    multiplies = rest[1] == 'x';
    rest.remove_prefix(2);
    step = take_number(rest).value_or(0);
  }
  if (!from || !to || !rest.empty() || step < (multiplies ? 2 : 1)) {
    refuse(spec, range, "not a range");
  }
  if (*from > *to || (multiplies && *from == 0)) {
    refuse(spec, range, "it has no end, or is empty");
  }
  std::vector<int64_t> sizes;
  for (int64_t size = *from; size <= *to; size = multiplies ? size * step : size + step) {
    sizes.push_back(size);
    if (sizes.size() > kMostCalls) {
      refuse(spec, range, "more than " + std::to_string(kMostCalls) + " sizes");
    }
    if (multiplies && size > *to / step) {
      break;
    }
  }
  return sizes;
}

// Finds the ranges in brackets that follow a dtype: `..` after them, as in int64[4]=0..9, is a range of values, and brackets
// that follow no word are lists.
std::vector<Range> ranges_of(const std::string& spec) {
  std::vector<Range> found;
  for (size_t open = spec.find('['); open != std::string::npos; open = spec.find('[', open + 1)) {
    if (open == 0 || std::isalnum(static_cast<unsigned char>(spec[open - 1])) == 0) {
      continue;
    }
    const size_t close = std::min(spec.find(']', open), spec.size());
    for (size_t begin = open + 1; begin < close;) {
      const size_t end = std::min(spec.find(',', begin), close);
      const std::string_view size = std::string_view(spec).substr(begin, end - begin);
      if (size.find("..") != std::string_view::npos) {
        const size_t first = size.find_first_not_of(' ');
        const size_t last = size.find_last_not_of(' ');
        found.push_back({begin + first, begin + last + 1, sizes_of(spec, size.substr(first, last + 1 - first))});
      }
      begin = end + 1;
    }
  }
  return found;
}

}  // namespace

std::vector<std::vector<std::string>> expand_sweep(const std::vector<std::string>& specs) {
  std::vector<std::vector<Range>> ranges;
  size_t calls = 1;
  bool has_range = false;
  for (const std::string& spec : specs) {
    ranges.push_back(ranges_of(spec));
    for (const Range& range : ranges.back()) {
      if (has_range && range.sizes.size() != calls) {
        refuse(spec, std::string_view(spec).substr(range.begin, range.end - range.begin),
               std::to_string(range.sizes.size()) + " sizes, where another range has " + std::to_string(calls) +
                   "; ranges advance together");
      }
      calls = range.sizes.size();
      has_range = true;
    }
  }
  std::vector<std::vector<std::string>> expanded(calls);
  for (size_t call = 0; call < calls; ++call) {
    for (size_t i = 0; i < specs.size(); ++i) {
      std::string spec = specs[i];
      for (auto range = ranges[i].rbegin(); range != ranges[i].rend(); ++range) {
        spec.replace(range->begin, range->end - range->begin, std::to_string(range->sizes[call]));
      }
      expanded[call].push_back(std::move(spec));
    }
  }
  return expanded;
}

}  // namespace sconce::cli
