#include "trace/sizes/size_pattern.h"

#include "shapes/size_arithmetic.h"

#include <algorithm>
#include <numeric>

namespace sconce {

SizePattern::SizePattern(const std::vector<int64_t>& sizes) {
  for (const int64_t size : sizes) {
    rules_.push_back({kNone, 0, size});
  }
}

SizePattern::SizePattern(const std::vector<int64_t>& sizes, const std::vector<int64_t>& before,
                         const std::vector<bool>& was_symbolic)
    : SizePattern(sizes) {
  std::vector<int64_t> values_before;
  // Small sizes first: others are multiples of them.
  std::vector<size_t> order(sizes.size());
  std::iota(order.begin(), order.end(), size_t{0});
  std::stable_sort(order.begin(), order.end(), [&](size_t a, size_t b) { return sizes[a] < sizes[b]; });
  const auto find_rule = [&](int64_t now, int64_t then) -> Rule {
    for (size_t i = 0; i < values_.size(); ++i) {
      if (now % values_[i] == 0 && then % values_before[i] == 0 && now / values_[i] == then / values_before[i]) {
        return {i, now / values_[i], 0};
      }
    }
    for (size_t i = 0; i < values_.size(); ++i) {
      if (now - values_[i] == then - values_before[i]) {
        return {i, 1, now - values_[i]};
      }
    }
    values_.push_back(now);
    values_before.push_back(then);
    return {values_.size() - 1, 1, 0};
  };
  for (const size_t i : order) {
    const bool changes = sizes[i] != before[i] || was_symbolic[i];
    // Sizes of 0 and 1 mean something else: nothing, and any size.
    if (changes && sizes[i] >= 2 && before[i] >= 2) {
      rules_[i] = find_rule(sizes[i], before[i]);
      if (rules_[i].symbol == sources_.size()) {
        sources_.push_back(i);
      }
    }
  }
}

std::optional<std::vector<int64_t>> SizePattern::match(const std::vector<int64_t>& sizes) const {
  if (sizes.size() != rules_.size()) {
    return std::nullopt;
  }
  std::vector<int64_t> values;
  for (const size_t source : sources_) {
    values.push_back(sizes[source]);
  }
  for (size_t i = 0; i < sizes.size(); ++i) {
    const Rule& rule = rules_[i];
    if (sizes[i] != (rule.symbol == kNone ? rule.offset : rule.factor * values[rule.symbol] + rule.offset)) {
      return std::nullopt;
    }
  }
  const bool are_large = std::all_of(values.begin(), values.end(), [](int64_t value) { return value >= 2; });
  return are_large ? std::optional(std::move(values)) : std::nullopt;
}

Dim SizePattern::dim(size_t index, SizeArithmetic& arithmetic) const {
  const Rule& rule = rules_[index];
  if (rule.symbol == kNone) {
    return Dim::known(rule.offset);
  }
  const Dim symbol = Dim::symbol(static_cast<int64_t>(rule.symbol + 1));
  return arithmetic.add(arithmetic.multiply(symbol, Dim::known(rule.factor)), Dim::known(rule.offset));
}

std::vector<bool> SizePattern::symbolic() const {
  std::vector<bool> found;
  for (const Rule& rule : rules_) {
    found.push_back(rule.symbol != kNone);
  }
  return found;
}

}  // namespace sconce
