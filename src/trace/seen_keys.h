// SeenKeys: which kinds of calls have come before.
#pragma once

#include "base/flat_map.h"

#include <cstdint>

namespace sconce {

// To record and compile a call costs many calls. The first kind of a program is recorded at once; a later kind when it comes
// again, so that calls whose sizes never repeat cost nothing. Not thread-safe.
class SeenKeys {
 public:
  // Returns whether a call with a key of this hash is to be recorded. Remembers the key. `records_first`: false if even the
  // first kind must come again.
  bool should_record(uint64_t hash, bool records_first) {
    if (hashes_.size() >= kMaxKeys) {
      hashes_.clear();
    }
    const bool is_first = records_first && hashes_.empty();
    return !hashes_.insert(hash).second || is_first;
  }

 private:
  static constexpr size_t kMaxKeys = 4096;
  FlatSet<uint64_t> hashes_;
};

}  // namespace sconce
