#include "passes/matmul/cost_model.h"

#include <algorithm>

namespace sconce {
namespace {

// Measured from Python, one thread of a virtual server CPU, float32, a call at about 10 µs. m × k times k × n, N times; how
// many times as fast one product is:
//   sums                 32 × 256 · 256 × 1024, N = 2, both sides joined anew           0.6
//                        the same, the right sides constants                            1.0
//                        1 × 64 · 64 × 256, N = 2, the right sides constants            2.1
//                        64 × 32 · 32 × 64, N = 8, both sides joined anew               3.0
//   shared right side    1 × 64 · 64 × 64, N = 4                                        0.8
//                        4 × 256 · 256 × 256, N = 4                                     1.0
//                        1 × 256 · 256 × 256, N = 4                                     1.3
//   shared left side     1 × 64 · 64 × 64, N = 3, constants                             0.7
//                        32 × 256 · 256 × 256, N = 3, constants                         1.0
//                        128 × 64 · 64 × 64, N = 4, constants                           1.2

// Of elements copied to join operands, per element that adding up one by one would write.
constexpr int64_t kMaxCopies = 2;
// Vectors, that is, by a matrix so large that reading it takes the time.
constexpr int64_t kMaxRows = 1;
constexpr int64_t kMinShared = int64_t{1} << 15;
// Matrices so narrow that the kernel does not fill its blocks, and enough rows to make up for a call more.
constexpr int64_t kMaxColumns = 128;
constexpr int64_t kMinRows = 8;

}  // namespace

bool pays_to_add_at_once(const Products& terms) {
  const Product& first = terms.front();
  const auto added = static_cast<int64_t>(terms.size()) - 1;
  const bool are_constants =
      std::all_of(terms.begin(), terms.end(), [](const Product& term) { return term.fixed_right.has_value(); });
  // Of a left side alone any number of rows is copied: as many are added.
  const Dim rows = are_constants ? Dim::known(1) : first.left_facts.sizes->front();
  const auto sum = elements_in({rows, first.columns()});
  int64_t copied = 0;
  for (const Product& term : terms) {
    const auto left = elements_in({rows, term.inner()});
    const auto right = are_constants ? std::optional<int64_t>(0) : elements_in(*term.right_facts.sizes);
    if (!sum || !left || !right) {
      return false;
    }
    copied += *left + *right;
  }
  return copied / kMaxCopies <= added * *sum;
}

bool is_profitable_to_join(const Product& member, Side shared) {
  const c10::ArrayRef<Dim> sizes = *member.left_facts.sizes;
  const auto rows = elements_in(sizes.slice(0, sizes.size() - 1));
  if (!rows) {
    return false;
  }
  if (shared == Side::kLeft) {
    return *rows >= kMinRows && member.fixed_right && member.columns().is_known() && member.columns().value() <= kMaxColumns;
  }
  const auto elements = elements_in(*member.right_facts.sizes);
  return *rows <= kMaxRows && elements && *elements >= kMinShared;
}

}  // namespace sconce
