// SizePattern: which sizes the inputs of a trace may have.
#pragma once

#include "ir/facts.h"

#include <cstdint>
#include <optional>
#include <vector>

namespace sconce {

class SizeArithmetic;

// Each size is a number, or factor · symbol + offset. Symbols are at least 2.
class SizePattern {
 public:
  SizePattern() = default;
  // Admits these sizes alone.
  explicit SizePattern(const std::vector<int64_t>& sizes);
  // Admits these sizes and, as far as they tell, `before`: sizes that changed from one to the other are symbolic. Those with
  // `was_symbolic` are so, too. Two sizes that changed in the same way get one symbol.
  SizePattern(const std::vector<int64_t>& sizes, const std::vector<int64_t>& before, const std::vector<bool>& was_symbolic);

  // Returns what the symbols are if the pattern admits the sizes.
  std::optional<std::vector<int64_t>> match(const std::vector<int64_t>& sizes) const;

  bool has_symbols() const { return !values_.empty(); }
  // Returns what the symbols are for the sizes that the pattern was made of.
  const std::vector<int64_t>& values() const { return values_; }
  // Returns size `index` as an expression, in which symbol i is Dim::symbol(i + 1).
  Dim dim(size_t index, SizeArithmetic& arithmetic) const;
  // Returns for each symbol the index of a size that is the symbol itself.
  const std::vector<size_t>& sources() const { return sources_; }
  // Returns which sizes are symbolic.
  std::vector<bool> symbolic() const;

 private:
  static constexpr size_t kNone = SIZE_MAX;
  struct Rule {
    size_t symbol = kNone;
    int64_t factor = 0;
    int64_t offset = 0;
  };
  std::vector<Rule> rules_;
  std::vector<int64_t> values_;
  std::vector<size_t> sources_;
};

}  // namespace sconce
