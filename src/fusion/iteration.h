// Iteration: the loops of a kernel over operands of given sizes and strides.
#pragma once

#include "fusion/tensor_form.h"

#include <optional>
#include <span>
#include <vector>

namespace sconce {

struct Iteration {
  // From the outermost dimension to the innermost, the elements of a row. At least two: rows, and elements of a row.
  std::vector<int64_t> sizes;
  // By operand, then by dimension, in bytes; 0 where the operand is broadcast. The outputs come last.
  std::vector<std::vector<int64_t>> strides;

  int64_t elements() const;
};

struct IterationOperand {
  Form form;
  int64_t bytes;  // of an element
};

struct IterationOutput {
  size_t bytes;            // of an element
  bool is_of_row = false;  // one element for each row
};

// Plans the loops over results of one form, in the order of their memory: merges dimensions that every operand steps through
// alike. If the last `folded_dims` dimensions are folded, they form a row, and results are contiguous. Returns nothing where
// folded dimensions do not merge.
std::optional<Iteration> plan_iteration(const Form& result, size_t folded_dims, std::span<const IterationOperand> operands,
                                        std::span<const IterationOutput> outputs);

}  // namespace sconce
