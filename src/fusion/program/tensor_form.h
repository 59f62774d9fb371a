// Form: sizes and strides, and those of the results of pointwise operators.
#pragma once

#include <ATen/core/Tensor.h>
#include <c10/util/DimVector.h>

#include <optional>
#include <span>

namespace sconce {

// Returns the sizes to which both broadcast; nothing if they do not.
std::optional<c10::DimVector> broadcast_sizes(c10::IntArrayRef a, c10::IntArrayRef b);

// Sizes and strides of a tensor, in elements.
struct Form {
  c10::DimVector sizes;
  c10::DimVector strides;

  bool operator==(const Form&) const = default;
};

Form form_of(const at::Tensor& tensor);
bool is_contiguous(const Form& form);
bool is_channels_last(const Form& form);
Form contiguous_form(c10::IntArrayRef sizes);
// Returns whether the elements fill a piece of memory, each in a place of its own.
bool is_dense(const Form& form);
// Returns whether each element is known to have a place of its own: every dimension steps over the ones inside it.
bool has_places_of_its_own(const Form& form);

// Returns the form that LibTorch's TensorIterator gives the result of a pointwise operator: it follows the strides of all
// operands. `has_number` says that a number counts as one of them. Returns nothing if the operands do not broadcast.
std::optional<Form> pointwise_form(std::span<const Form* const> operands, bool has_number);

// Returns the strides along the dimensions of `sizes`; 0 where the form is broadcast.
c10::DimVector broadcast_strides(const Form& form, c10::IntArrayRef sizes);

}  // namespace sconce
