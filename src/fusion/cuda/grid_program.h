// GridProgram: what each thread of a grid does to compute a kernel program on a GPU.
//
//   for (i = block * 256 + thread; i < words[0]; i += blocks * 256)
//     %0 = load of operand 0 at byte 4 * i
//     %1 = exp %0
//     store %1 to operand 1 at byte 4 * i
//
// The CUDA text is printed of it, statement by statement (cuda_text.h), and tests run it on the CPU, thread by thread: what
// they run is what is printed.
#pragma once

#include "fusion/program/kernel_program.h"

#include <cstdint>
#include <vector>

namespace sconce {

// A value that each thread has: an index, the answer to a question, or an element.
using GridVariable = uint32_t;

enum class GridOp : uint8_t {
  // ---- of indices
  kConstant,  // `number`
  kWord,      // word `number` of the arguments: a size or a stride
  kThread,    // in the block
  kBlock,
  kBlocks,  // of the grid
  kAdd,
  kSubtract,
  kMultiply,
  kDivide,
  kRemainder,
  kQuotient,  // of a by the number whose reciprocal is b, c (reciprocal.h); of 32 bits
  kMinimum,
  kLess,       // whether a < b
  kBoth,       // whether a and b
  kChoose,     // a ? b : c
  kIsAligned,  // whether each operand that is read in order begins at a multiple of `number` elements
  // ---- order
  kFor,  // the result is a, then a + c, … below b; up to the kEnd that belongs to it. `number` 1: of few turns, if any
  kIf,   // a; the same
  kEnd,
  kBarrier,  // of the block
  // ---- elements
  kLoad,        // results: neighbors in memory, the first at byte a of operand `number`
  kStore,       // of the operands after the first; as kLoad
  kSharedLoad,  // the same, at byte a of the block's shared memory
  kSharedStore,
  kShuffle,    // a of the thread of the warp whose number differs in the bits `number`
  kParameter,  // parameter `number`, as MachineOp::kNumber
  kLength,     // index a as a floating number
  kCompute,    // `instruction` of the operands
  kAssign,     // gives the result, which has a value, that of a
};

struct GridStatement {
  GridOp op;
  std::vector<GridVariable> results = {};
  std::vector<GridVariable> operands = {};
  int64_t number = 0;
  Instruction instruction = {};  // its operands' numbers mean nothing
};

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

struct GridProgram {
  KernelProgram program;
  GridForm form;
  std::vector<GridStatement> statements;
  std::vector<c10::ScalarType> types;  // by variable; Undefined: an index
  size_t words = 0;                    // of the arguments
  // Shared memory of a block: a fixed part, and as many bytes for each element of a row.
  size_t shared_bytes = 0;
  size_t shared_bytes_of_element = 0;
};

// Writes the program for the form. The words of the arguments are those of grid_arguments.h.
GridProgram grid_program(const KernelProgram& program, const GridForm& form);

}  // namespace sconce
