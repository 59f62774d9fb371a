#include "fusion/program/tensor_form.h"

#include <c10/core/Contiguity.h>
#include <c10/core/MemoryFormat.h>

#include <algorithm>
#include <numeric>

namespace sconce {
namespace {

int64_t element_count(c10::IntArrayRef sizes) {
  return std::accumulate(sizes.begin(), sizes.end(), int64_t{1}, std::multiplies<>());
}

// Returns the strides where all operands have the result's sizes and one layout; nothing elsewhere.
std::optional<c10::DimVector> common_strides(std::span<const Form* const> operands, c10::IntArrayRef sizes) {
  const auto all = [&](const auto& holds) {
    return std::all_of(operands.begin(), operands.end(), [&](const Form* each) { return holds(*each); });
  };
  if (!all([&](const Form& each) { return sizes == each.sizes; })) {
    return std::nullopt;
  }
  if (all(is_contiguous)) {
    return contiguous_form(sizes).strides;
  }
  if (all(is_channels_last)) {
    const auto strides = c10::get_channels_last_strides_2d(sizes);
    return c10::DimVector(strides.begin(), strides.end());
  }
  if (all([&](const Form& each) { return is_dense(each) && each.strides == operands[0]->strides; })) {
    return operands[0]->strides;
  }
  return std::nullopt;
}

// Returns whether dimension `a` must be outside of dimension `b`: above 0 if so, below 0 if not, 0 if no operand decides.
int compare_dimensions(std::span<const c10::DimVector> strides, c10::IntArrayRef sizes, size_t a, size_t b) {
  for (const c10::DimVector& each : strides) {
    if (each[a] == 0 || each[b] == 0) {
      continue;
    }
    if (each[a] != each[b]) {
      return each[a] < each[b] ? -1 : 1;
    }
    if (sizes[a] > sizes[b]) {
      return 1;
    }
  }
  return 0;
}

// Returns the dimensions from the innermost to the outermost, as TensorIterator::reorder_dimensions sorts them.
std::vector<size_t> memory_order(std::span<const c10::DimVector> strides, c10::IntArrayRef sizes) {
  std::vector<size_t> order(sizes.size());
  std::iota(order.rbegin(), order.rend(), size_t{0});
  for (size_t i = 1; i < order.size(); ++i) {
    size_t at = i;
    for (size_t inner = i; inner-- > 0;) {
      const int comparison = compare_dimensions(strides, sizes, order[inner], order[at]);
      if (comparison > 0) {
        std::swap(order[inner], order[at]);
        at = inner;
      } else if (comparison < 0) {
        break;
      }
    }
  }
  return order;
}

}  // namespace

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

c10::DimVector broadcast_strides(const Form& form, c10::IntArrayRef sizes) {
  c10::DimVector strides(sizes.size(), 0);
  const size_t missing = sizes.size() - form.sizes.size();
  for (size_t dim = 0; dim < form.sizes.size(); ++dim) {
    strides[missing + dim] = form.sizes[dim] == 1 && sizes[missing + dim] != 1 ? 0 : form.strides[dim];
  }
  return strides;
}

bool is_contiguous(const Form& form) {
  return c10::_compute_contiguous<int64_t>(form.sizes, form.strides, element_count(form.sizes));
}

bool is_channels_last(const Form& form) {
  return c10::_compute_channels_last_contiguous_2d<int64_t>(form.sizes, form.strides);
}

Form form_of(const at::Tensor& tensor) {
  return {c10::DimVector(tensor.sizes().begin(), tensor.sizes().end()),
          c10::DimVector(tensor.strides().begin(), tensor.strides().end())};
}

Form contiguous_form(c10::IntArrayRef sizes) {
  Form form{c10::DimVector(sizes.begin(), sizes.end()), c10::DimVector(sizes.size(), 1)};
  for (size_t i = sizes.size(); i-- > 1;) {
    form.strides[i - 1] = form.strides[i] * std::max<int64_t>(sizes[i], 1);
  }
  return form;
}

bool has_places_of_its_own(const Form& form) {
  std::vector<size_t> order(form.sizes.size());
  std::iota(order.begin(), order.end(), size_t{0});
  std::sort(order.begin(), order.end(), [&](size_t a, size_t b) { return form.strides[a] < form.strides[b]; });
  int64_t inside = 1;  // the elements of memory that the dimensions so far span
  return std::all_of(order.begin(), order.end(), [&](size_t dim) {
    const bool steps_over = form.sizes[dim] <= 1 || form.strides[dim] >= inside;
    inside += std::max<int64_t>(form.sizes[dim] - 1, 0) * form.strides[dim];
    return steps_over;
  });
}

bool is_dense(const Form& form) {
  std::vector<std::pair<int64_t, int64_t>> dimensions;  // strides and sizes
  for (size_t i = 0; i < form.sizes.size(); ++i) {
    if (form.sizes[i] == 0) {
      return true;
    }
    if (form.sizes[i] != 1) {
      dimensions.emplace_back(form.strides[i], form.sizes[i]);
    }
  }
  std::sort(dimensions.begin(), dimensions.end());
  int64_t expected = 1;
  for (const auto& [stride, size] : dimensions) {
    if (stride != expected) {
      return false;
    }
    expected *= size;
  }
  return true;
}

std::optional<Form> pointwise_form(std::span<const Form* const> operands, bool has_number) {
  Form form;
  for (const Form* operand : operands) {
    auto together = broadcast_sizes(form.sizes, operand->sizes);
    if (!together) {
      return std::nullopt;
    }
    form.sizes = std::move(*together);
  }
  const c10::DimVector& sizes = form.sizes;
  if (operands.empty() || sizes.empty()) {
    return contiguous_form(sizes);
  }
  if (!has_number) {
    if (auto strides = common_strides(operands, sizes)) {
      form.strides = std::move(*strides);
      return form;
    }
  }
  std::vector<c10::DimVector> strides;
  for (const Form* operand : operands) {
    strides.push_back(broadcast_strides(*operand, sizes));
  }
  const std::vector<size_t> order = memory_order(strides, sizes);
  if (std::is_sorted(order.rbegin(), order.rend())) {
    return contiguous_form(sizes);
  }
  form.strides.resize(sizes.size());
  int64_t step = 1;
  for (const size_t dim : order) {
    form.strides[dim] = step;
    step *= sizes[dim];
  }
  return form;
}

}  // namespace sconce
