#include "fusion/iteration.h"

#include <algorithm>
#include <numeric>

namespace sconce {
namespace {

// Builds the loops from the outermost dimension to the innermost.
class LoopBuilder {
 public:
  LoopBuilder(Iteration& loops, size_t operands) : loops_(loops) { loops_.strides.resize(operands); }

  // Adds a dimension inside all others. Merges it with the one around it, if `may_merge` and every operand allows it.
  void add(int64_t size, const std::vector<int64_t>& strides, bool may_merge) {
    bool merges = may_merge && !loops_.sizes.empty();
    for (size_t k = 0; k < strides.size() && merges; ++k) {
      merges = loops_.strides[k].back() == strides[k] * size;
    }
    if (merges) {
      loops_.sizes.back() *= size;
    } else {
      loops_.sizes.push_back(size);
    }
    for (size_t k = 0; k < strides.size(); ++k) {
      if (merges) {
        loops_.strides[k].back() = strides[k];
      } else {
        loops_.strides[k].push_back(strides[k]);
      }
    }
  }

  // Adds a dimension of one element outside all others.
  void add_outermost() {
    loops_.sizes.insert(loops_.sizes.begin(), 1);
    for (auto& strides : loops_.strides) {
      strides.insert(strides.begin(), 0);
    }
  }

 private:
  Iteration& loops_;
};

}  // namespace

int64_t Iteration::elements() const { return std::accumulate(sizes.begin(), sizes.end(), int64_t{1}, std::multiplies<>()); }

std::optional<Iteration> plan_iteration(const Form& result, size_t folded_dims, std::span<const IterationOperand> operands,
                                        std::span<const IterationOutput> outputs) {
  const c10::DimVector& sizes = result.sizes;
  const size_t rank = sizes.size();
  std::vector<c10::DimVector> strides;
  for (const IterationOperand& operand : operands) {
    strides.push_back(broadcast_strides(operand.form, sizes));
  }
  std::vector<size_t> order(rank);
  std::iota(order.begin(), order.end(), size_t{0});
  if (folded_dims == 0) {
    std::stable_sort(order.begin(), order.end(), [&](size_t a, size_t b) { return result.strides[a] > result.strides[b]; });
  }
  Iteration iteration;
  c10::DimVector row_strides(rank, 0);  // of a result with one element for each row
  int64_t row_step = 1;
  for (size_t i = rank - folded_dims; i-- > 0;) {
    row_strides[i] = row_step;
    row_step *= std::max<int64_t>(sizes[i], 1);
  }
  const auto strides_of = [&](size_t dim) {
    std::vector<int64_t> bytes;
    for (size_t k = 0; k < operands.size(); ++k) {
      bytes.push_back(strides[k][dim] * operands[k].bytes);
    }
    for (const IterationOutput& output : outputs) {
      bytes.push_back((output.is_of_row ? row_strides : result.strides)[dim] * static_cast<int64_t>(output.bytes));
    }
    return bytes;
  };
  LoopBuilder loops(iteration, operands.size() + outputs.size());
  for (size_t i = 0; i < rank - folded_dims; ++i) {
    if (sizes[order[i]] != 1) {
      loops.add(sizes[order[i]], strides_of(order[i]), /*may_merge=*/true);
    }
  }
  const size_t outer = iteration.sizes.size();
  for (size_t dim = rank - folded_dims; dim < rank; ++dim) {
    if (sizes[dim] != 1) {
      loops.add(sizes[dim], strides_of(dim), iteration.sizes.size() > outer);
    }
  }
  if (iteration.sizes.size() > outer + 1 && folded_dims != 0) {
    return std::nullopt;
  }
  if (iteration.sizes.empty() || (folded_dims != 0 && iteration.sizes.size() == outer)) {
    // Rows of one element. The output's next one follows, so that the program is that of longer rows.
    std::vector<int64_t> next(operands.size(), 0);
    for (const IterationOutput& output : outputs) {
      next.push_back(output.is_of_row ? 0 : static_cast<int64_t>(output.bytes));
    }
    loops.add(1, next, /*may_merge=*/false);
  }
  if (iteration.sizes.size() == 1) {
    loops.add_outermost();
  }
  return iteration;
}

}  // namespace sconce
