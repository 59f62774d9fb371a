#include "fusion/iteration.h"

#include <algorithm>
#include <numeric>

namespace sconce {
namespace {

// Returns the strides of an operand along the dimensions of `sizes`, in elements.
c10::DimVector broadcast_strides(const OperandForm& operand, c10::IntArrayRef sizes) {
  c10::DimVector strides(sizes.size(), 0);
  const size_t missing = sizes.size() - operand.sizes.size();
  for (size_t dim = 0; dim < operand.sizes.size(); ++dim) {
    const size_t at = missing + dim;
    strides[at] = operand.sizes[dim] == 1 && sizes[at] != 1 ? 0 : operand.strides[dim];
  }
  return strides;
}

// Returns whether the strides decrease in this order of dimensions. Dimensions that are broadcast or have one element say
// nothing.
bool are_in_order(c10::IntArrayRef strides, c10::IntArrayRef sizes, std::span<const size_t> order) {
  int64_t last = INT64_MAX;
  for (const size_t dim : order) {
    if (sizes[dim] != 1 && strides[dim] != 0) {
      if (strides[dim] > last) {
        return false;
      }
      last = strides[dim];
    }
  }
  return true;
}

}  // namespace

int64_t Iteration::elements() const { return std::accumulate(sizes.begin(), sizes.end(), int64_t{1}, std::multiplies<>()); }

std::optional<c10::DimVector> broadcast_sizes(c10::IntArrayRef a, c10::IntArrayRef b) {
  if (a.size() < b.size()) {
    std::swap(a, b);
  }
  c10::DimVector sizes(a.begin(), a.end());
  const size_t missing = a.size() - b.size();
  for (size_t i = 0; i < b.size(); ++i) {
    int64_t& size = sizes[missing + i];
    if (size != b[i] && size != 1 && b[i] != 1) {
      return std::nullopt;
    }
    size = size == 1 ? b[i] : size;
  }
  return sizes;
}

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

// Returns the order of dimensions, the outermost first, in which every operand's strides decrease.
std::optional<std::vector<size_t>> common_order(c10::IntArrayRef sizes, std::span<const c10::DimVector> strides,
                                                std::span<const OperandForm> operands) {
  std::vector<size_t> order(sizes.size());
  std::iota(order.begin(), order.end(), size_t{0});
  const auto all_are_in_order = [&] {
    return std::all_of(strides.begin(), strides.end(),
                       [&](const c10::DimVector& each) { return are_in_order(each, sizes, order); });
  };
  if (all_are_in_order()) {
    return order;
  }
  // Channels-last, for example: the order of the first operand that has the whole shape.
  const auto whole =
      std::find_if(operands.begin(), operands.end(), [&](const OperandForm& operand) { return operand.sizes == sizes; });
  if (whole == operands.end() || std::find(sizes.begin(), sizes.end(), 1) != sizes.end()) {
    return std::nullopt;
  }
  const c10::DimVector& leading = strides[static_cast<size_t>(whole - operands.begin())];
  std::stable_sort(order.begin(), order.end(), [&](size_t a, size_t b) { return leading[a] > leading[b]; });
  const bool is_broadcast = std::find(leading.begin(), leading.end(), 0) != leading.end();
  return !is_broadcast && all_are_in_order() ? std::optional(order) : std::nullopt;
}

}  // namespace

std::optional<Iteration> plan_iteration(c10::IntArrayRef sizes, size_t folded_dims, std::span<const OperandForm> operands,
                                        std::span<const IterationOutput> outputs) {
  const size_t rank = sizes.size();
  std::vector<c10::DimVector> strides;
  for (const OperandForm& operand : operands) {
    strides.push_back(broadcast_strides(operand, sizes));
  }
  std::vector<size_t> order(rank);
  std::iota(order.begin(), order.end(), size_t{0});
  // Operators that fold return contiguous results.
  if (folded_dims == 0) {
    auto common = common_order(sizes, strides, operands);
    if (!common) {
      return std::nullopt;
    }
    order = std::move(*common);
  }
  Iteration iteration;
  iteration.output_strides.resize(rank);
  c10::DimVector row_strides(rank, 0);  // of a result with one element for each row
  int64_t step = 1;
  int64_t row_step = 1;
  for (size_t i = rank; i-- > 0;) {
    iteration.output_strides[order[i]] = step;
    step *= std::max<int64_t>(sizes[order[i]], 1);
    if (i < rank - folded_dims) {
      row_strides[i] = row_step;
      row_step *= std::max<int64_t>(sizes[i], 1);
    }
  }
  const auto strides_of = [&](size_t dim) {
    std::vector<int64_t> bytes;
    for (size_t k = 0; k < operands.size(); ++k) {
      bytes.push_back(strides[k][dim] * operands[k].bytes);
    }
    for (const IterationOutput& output : outputs) {
      bytes.push_back((output.is_of_row ? row_strides : iteration.output_strides)[dim] * static_cast<int64_t>(output.bytes));
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
