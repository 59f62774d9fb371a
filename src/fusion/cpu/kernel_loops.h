// KernelLoops: a compiled kernel, run over all elements of its results.
#pragma once

#include "fusion/cpu/llvm_text.h"
#include "fusion/program/iteration.h"
#include "fusion/program/kernel_backend.h"

#include <cstdint>
#include <optional>
#include <vector>

namespace sconce {

// All that the calls for operands of one form have in common, computed once.
struct KernelLoops {
  // `buffers`: bytes for each element of a row; 0 for a buffer that an output serves as. `cost`: instructions for an
  // element.
  KernelLoops() = default;
  KernelLoops(Iteration iteration, std::vector<size_t> buffers, size_t cost, bool reduces_rows);

  // Returns whether the kernel computes all elements in one row.
  bool is_flat() const;
  // Changes the length of the row. Requires is_flat().
  void set_elements(int64_t count);

  // Returns the dimension that can be cut between any two of `rows` rows of alike many elements. Nothing if there is none,
  // or the elements of an input do not lie row after row without gaps.
  std::optional<size_t> row_dimension(size_t input, int64_t rows) const;

  Iteration iteration;
  std::vector<size_t> buffers;
  std::vector<int64_t> steps;  // as a KernelFunction takes them
  int64_t elements = 0;
  int64_t grain = 1;  // elements below which a second thread does not pay
  bool reduces_rows = false;
};

// Computes the rows from `first` up to `last` on this thread. Requires a row_dimension.
void run_kernel_rows(const KernelLoops& loops, KernelFunction function, const KernelCallArguments& arguments, int64_t rows,
                     int64_t first, int64_t last);
void run_kernel(const KernelLoops& loops, KernelFunction function, const KernelCallArguments& arguments);

}  // namespace sconce
