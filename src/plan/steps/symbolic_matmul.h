// torch.matmul of tensors whose sizes are open.
#pragma once

#include <ATen/core/Tensor.h>

namespace sconce {

// Returns whether a size of the tensor is a c10::SymInt.
bool has_symbolic_sizes(const at::Tensor& tensor);

// Returns the matrix product of two tensors, at least one of which has three dimensions or more, by operators that take open
// sizes. LibTorch's function reads them as plain numbers. The cases, and the products that compute them, are those of
// torch.matmul's documentation: batches are broadcast; a matrix that is multiplied with a batch is one factor of a single
// product of all rows, where the rows lie one after the other or the matrix requires a gradient. Throws c10::Error if sizes
// do not fit.
at::Tensor matmul_with_symbolic_sizes(const at::Tensor& a, const at::Tensor& b);

}  // namespace sconce
