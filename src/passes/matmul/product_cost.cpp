#include "passes/matmul/product_cost.h"

#include <algorithm>

namespace sconce {
namespace {

// The speedup of one product over N products m × k · k × n. Measured from Python on one thread of a virtual server CPU, in
// float32, with about 10 µs per call:
//   sums                 32 × 256 · 256 × 1024, N = 2, both sides joined in every run   0.6
//                        the same, the right sides constants                            1.0
//                        1 × 64 · 64 × 256, N = 2, the right sides constants            2.1
//                        64 × 32 · 32 × 64, N = 8, both sides joined in every run       3.0
//   shared right side    1 × 64 · 64 × 64, N = 4                                        0.8
//                        4 × 256 · 256 × 256, N = 4                                     1.0
//                        1 × 256 · 256 × 256, N = 4                                     1.3
//   shared left side     1 × 64 · 64 × 64, N = 3, constants                             0.7
//                        32 × 256 · 256 × 256, N = 3, constants                         1.0
//                        128 × 64 · 64 × 64, N = 4, constants                           1.2

// Elements copied to join operands, per element that separate sums would write.
constexpr int64_t kMaxCopies = 2;
// Vectors times a matrix so large that reading it dominates.
constexpr int64_t kMaxRows = 1;
constexpr int64_t kMinShared = int64_t{1} << 15;
// Matrices too narrow to fill the kernel's blocks, with enough rows to outweigh one more call.
constexpr int64_t kMaxColumns = 128;
constexpr int64_t kMinRows = 8;

}  // namespace

bool pays_to_add_at_once(const Products& terms) {
  const Product& first = terms.front();
  const auto added = static_cast<int64_t>(terms.size()) - 1;
  const bool are_constants = std::ranges::all_of(terms, [](const Product& term) { return term.fixed_right.has_value(); });
  // If only left sides are joined, any number of rows may be copied: as many rows are summed.
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
