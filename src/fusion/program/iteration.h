// Iteration: the loops of a kernel over operands of given sizes and strides.
#pragma once

#include "fusion/program/kernel_program.h"
#include "fusion/program/tensor_form.h"

#include <bitset>
#include <optional>
#include <span>
#include <vector>

namespace sconce {

using DimSet = std::bitset<64>;

struct Iteration {
  // From the outermost dimension to the innermost, the elements of a row. At least two: rows, and elements of a row.
  std::vector<int64_t> sizes;
  // By operand, then by dimension, in bytes; 0 where the operand is broadcast. The outputs come last.
  std::vector<std::vector<int64_t>> strides;
  LoopOrder order = LoopOrder::kRows;
  // A row that is reduced consists of this many segments. Each has the size of the last dimension.
  int64_t segments = 1;
  std::vector<int64_t> segment_strides;  // by operand, in bytes

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
// alike. Dimensions that are reduced form a row; then results are contiguous. Returns nothing where a row would have more
// than two dimensions, those of segments and their elements.
std::optional<Iteration> plan_iteration(const Form& result, DimSet reduced, std::span<const IterationOperand> operands,
                                        std::span<const IterationOutput> outputs);

}  // namespace sconce
