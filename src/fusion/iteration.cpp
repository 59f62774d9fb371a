#include "fusion/iteration.h"

#include <algorithm>
#include <numeric>

namespace sconce {
namespace {

// Returns the strides of a tensor along the dimensions of `sizes`, in elements.
c10::DimVector broadcast_strides(const at::Tensor& tensor, c10::IntArrayRef sizes) {
  c10::DimVector strides(sizes.size(), 0);
  const size_t missing = sizes.size() - static_cast<size_t>(tensor.dim());
  for (int64_t dim = 0; dim < tensor.dim(); ++dim) {
    const size_t at = missing + static_cast<size_t>(dim);
    strides[at] = tensor.size(dim) == 1 && sizes[at] != 1 ? 0 : tensor.stride(dim);
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

std::optional<Iteration> plan_iteration(c10::IntArrayRef sizes, std::span<const at::Tensor* const> operands,
                                        std::span<const size_t> output_bytes) {
  const size_t rank = sizes.size();
  std::vector<c10::DimVector> strides;
  for (const at::Tensor* operand : operands) {
    strides.push_back(broadcast_strides(*operand, sizes));
  }
  std::vector<size_t> order(rank);
  std::iota(order.begin(), order.end(), size_t{0});
  const auto all_are_in_order = [&] {
    return std::all_of(strides.begin(), strides.end(),
                       [&](const c10::DimVector& each) { return are_in_order(each, sizes, order); });
  };
  if (!all_are_in_order()) {
    // Channels-last, for example: the order of the first operand that has the whole shape.
    const auto whole =
        std::find_if(operands.begin(), operands.end(), [&](const at::Tensor* operand) { return operand->sizes() == sizes; });
    const bool has_dim_of_one = std::find(sizes.begin(), sizes.end(), 1) != sizes.end();
    if (whole == operands.end() || has_dim_of_one) {
      return std::nullopt;
    }
    const c10::DimVector& leading = strides[static_cast<size_t>(whole - operands.begin())];
    std::stable_sort(order.begin(), order.end(), [&](size_t a, size_t b) { return leading[a] > leading[b]; });
    if (std::find(leading.begin(), leading.end(), 0) != leading.end() || !all_are_in_order()) {
      return std::nullopt;
    }
  }
  Iteration iteration;
  iteration.output_strides.resize(rank);
  int64_t step = 1;
  for (size_t i = rank; i-- > 0;) {
    iteration.output_strides[order[i]] = step;
    step *= std::max<int64_t>(sizes[order[i]], 1);
  }
  const size_t all = operands.size() + output_bytes.size();
  const auto stride_of = [&](size_t operand, size_t dim) {
    return operand < operands.size()
               ? strides[operand][dim] * static_cast<int64_t>(operands[operand]->element_size())
               : iteration.output_strides[dim] * static_cast<int64_t>(output_bytes[operand - operands.size()]);
  };
  iteration.strides.resize(all);
  for (const size_t dim : order) {
    if (sizes[dim] == 1) {
      continue;
    }
    bool merges = !iteration.sizes.empty();
    for (size_t k = 0; k < all && merges; ++k) {
      merges = iteration.strides[k].back() == stride_of(k, dim) * sizes[dim];
    }
    if (merges) {
      iteration.sizes.back() *= sizes[dim];
    } else {
      iteration.sizes.push_back(sizes[dim]);
    }
    for (size_t k = 0; k < all; ++k) {
      if (merges) {
        iteration.strides[k].back() = stride_of(k, dim);
      } else {
        iteration.strides[k].push_back(stride_of(k, dim));
      }
    }
  }
  while (iteration.sizes.size() < 2) {
    const bool is_empty = iteration.sizes.empty();
    iteration.sizes.insert(iteration.sizes.begin(), 1);
    for (size_t k = 0; k < all; ++k) {
      // A single element: the output's is the next of a row, so that the program is that of longer rows.
      const int64_t inner = k < operands.size() ? 0 : static_cast<int64_t>(output_bytes[k - operands.size()]);
      iteration.strides[k].insert(iteration.strides[k].begin(), is_empty ? inner : 0);
    }
  }
  return iteration;
}

}  // namespace sconce
