#include "tests/differential/facts_claims.h"

namespace sconce::testing {
namespace {

template <typename Fact>
bool differs(const std::optional<Fact>& claimed, const std::optional<Fact>& seen) {
  return claimed && claimed != seen;
}

bool differ(const std::optional<std::vector<Dim>>& claimed, const std::optional<std::vector<Dim>>& seen,
            SymbolNumbers& symbols) {
  if (!claimed || claimed->empty()) {
    return claimed && seen && !seen->empty();
  }
  if (!seen || seen->size() != claimed->size()) {
    return true;
  }
  for (size_t i = 0; i < claimed->size(); ++i) {
    const Dim dim = (*claimed)[i];
    if (dim.is_symbol() && (*seen)[i].is_known()) {
      if (symbols.try_emplace(dim.value(), (*seen)[i]).first->second != (*seen)[i]) {
        return true;
      }
    } else if (dim.is_known() && dim != (*seen)[i]) {
      return true;
    }
  }
  return false;
}

}  // namespace

bool contradict(const TensorFacts& claimed, const TensorFacts& seen, SymbolNumbers& symbols) {
  return differs(claimed.defined, seen.defined) || differs(claimed.dtype, seen.dtype) ||
         differs(claimed.device, seen.device) || differs(claimed.layout, seen.layout) ||
         differs(claimed.requires_grad, seen.requires_grad) || differ(claimed.sizes, seen.sizes, symbols) ||
         differ(claimed.strides, seen.strides, symbols);
}

}  // namespace sconce::testing
