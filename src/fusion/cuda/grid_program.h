// GridProgram: the loops of a grid of threads on a GPU.
#pragma once

#include "fusion/program/loop_program.h"

#include <cstdint>

namespace sconce {

// How threads share the elements.
struct GridForm {
  uint32_t threads = 256;  // of a block
  // Threads that reduce one row together, a power of two; 0 if the program has no reductions.
  uint32_t lanes = 0;
  // Neighbors that a thread takes at a time. Operands that are read in order are aligned to as many elements: with `lanes`
  // in every call, else the kernel finds out, and takes elements one by one where they are not.
  uint32_t vector = 1;
  // Dimensions of the iteration, from the innermost; those around them have one element.
  uint32_t dims = 1;
  bool has_segments = false;
  // Turns that a thread takes over its row, written one after the other. It keeps values that several passes use
  // (grids.h) in registers. 0: any number of turns, in a loop.
  uint32_t trips = 0;
  bool has_buffers = false;  // without `trips`: such values are in shared memory; else they are computed again
  bool is_wide = false;      // indices have 64 bits
  // The text has a second kernel, for a list of calls (cuda_text.h).
  bool has_list = false;
};

// Returns the first dimension by whose size kernels divide, with reciprocals; `dims` if there is none.
inline size_t first_divided_dim(const GridForm& form) { return form.is_wide ? form.dims : form.has_segments ? 0 : 1; }

struct GridProgram : LoopProgram {
  GridForm form;
  // Shared memory of a block: a fixed part, and as many bytes for each element of a row.
  size_t shared_bytes = 0;
  size_t shared_bytes_of_element = 0;
};

// Writes the program for the form. The words of the arguments are those of grid_arguments.h.
GridProgram grid_program(const KernelProgram& program, const GridForm& form);

}  // namespace sconce
