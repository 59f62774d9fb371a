#include "tests/support/damage.h"

#include <algorithm>

namespace sconce::testing {

void damage(std::string& bytes, size_t begin, size_t end, Random& random) {
  for (size_t i = 0, mistakes = 1 + below(random, 4); i < mistakes && end > begin; ++i) {
    const size_t at = begin + below(random, end - begin);
    const size_t length = 1 + below(random, std::min<size_t>(16, end - at));
    switch (below(random, 6)) {
      case 0: bytes[at] = static_cast<char>(random()); break;
      case 1: bytes[at] = static_cast<char>(bytes[at] ^ (1 << below(random, 8))); break;
      case 2: bytes.replace(at, length, std::string(length, below(random, 2) == 0 ? '\xff' : '\0')); break;
      case 3: bytes.replace(at, length, bytes.substr(begin + below(random, end - begin), length)); break;
      case 4:
        bytes.erase(at, length);
        end = std::min(end, bytes.size());
        break;
      default: bytes.insert(at, bytes.substr(at, length)); break;
    }
    end = std::min(end, bytes.size());
  }
}

}  // namespace sconce::testing
