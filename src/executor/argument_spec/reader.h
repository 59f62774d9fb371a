// Reads the words of an ArgumentSpec.
#pragma once

#include "executor/argument_spec/fields.h"

#include <cstdint>
#include <span>
#include <string>

namespace sconce {

// One value of a spec, without the elements of a container.
struct SpecItem {
  uint64_t word;
  std::span<const uint64_t> payload;  // the words after it that belong to it

  bool is_shared_storage() const { return (word & spec_words::kSharedStorageTag) != 0; }
  bool is_other() const { return !is_shared_storage() && (word & spec_words::kOtherTag) != 0; }
  bool has_form(spec_words::Form form) const { return is_other() && spec_words::kForm.of(word) == form; }
  // Requires a tensor or None.
  uint64_t kind() const { return spec_words::kKind.of(word); }
  uint64_t length() const { return spec_words::kLength.of(word); }
  // Returns how many items after this one are its elements.
  uint64_t element_count() const;
  // Requires the form kString.
  std::string text() const;
};

class SpecReader {
 public:
  // Starts after the words of the state.
  explicit SpecReader(std::span<const uint64_t> words) : words_(words.subspan(spec_words::kStateWords)) {}
  bool is_at_end() const { return words_.empty(); }
  SpecItem next();

 private:
  std::span<const uint64_t> words_;
};

}  // namespace sconce
