// Iteration: the loops of a kernel over operands of given sizes and strides.
#pragma once

#include <c10/util/ArrayRef.h>
#include <c10/util/DimVector.h>

#include <optional>
#include <span>
#include <vector>

namespace sconce {

struct Iteration {
  // From the outermost dimension to the innermost, the elements of a row. At least two: rows, and elements of a row.
  std::vector<int64_t> sizes;
  // By operand, then by dimension, in bytes; 0 where the operand is broadcast. The outputs come last.
  std::vector<std::vector<int64_t>> strides;
  c10::DimVector output_strides;  // of a result of the whole shape, in elements

  int64_t elements() const;
};

// Returns the sizes to which both broadcast; nothing if they do not.
std::optional<c10::DimVector> broadcast_sizes(c10::IntArrayRef a, c10::IntArrayRef b);

// The form of an operand.
struct OperandForm {
  c10::IntArrayRef sizes;
  c10::IntArrayRef strides;  // in elements
  int64_t bytes;             // of an element
};

struct IterationOutput {
  size_t bytes;            // of an element
  bool is_of_row = false;  // one element for each row
};

// Plans the loops over a shape, whose last `folded_dims` dimensions must form a row if there are any: merges dimensions that
// every operand steps through alike. The results get the strides that LibTorch's TensorIterator gives them. Returns nothing
// where its order of dimensions is not decided by the operands alone, or where folded dimensions do not merge.
std::optional<Iteration> plan_iteration(c10::IntArrayRef sizes, size_t folded_dims, std::span<const OperandForm> operands,
                                        std::span<const IterationOutput> outputs);

}  // namespace sconce
