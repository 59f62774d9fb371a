// LoopProgram: what each thread does to compute a kernel program. A thread is one of a grid on a GPU, and a lane of a vector
// on the CPU, whose lanes take all steps together.
//
//   for (i = block * 256 + thread; i < words[0]; i += blocks * 256)      a grid
//     %0 = load of operand 0 at byte 4 * i
//     %1 = exp %0
//     store %1 to operand 1 at byte 4 * i
//
// The text of a kernel is printed of it, statement by statement: cuda/cuda_text.h, cpu/llvm_text.h. Tests run the statements
// one by one, so what they run is what is printed.
#pragma once

#include "fusion/program/kernel_program.h"

#include <cstdint>
#include <vector>

namespace sconce {

// A value that each thread has: an index, an address, the answer to a question, or an element.
using LoopVariable = uint32_t;

enum class LoopOp : uint8_t {
  // ---- of indices
  kConstant,  // `number`
  kWord,      // word `number` of the arguments: a size or a stride
  kThread,    // in the block, or the lane
  kBlock,
  kBlocks,         // of the grid
  kAddress,        // of the first element of operand `number`, or byte a from there
  kSharedAddress,  // of byte a of the block's shared memory
  kAdd,            // a may be an address
  kSubtract,
  kMultiply,
  kDivide,
  kRemainder,
  kQuotient,  // of a by the number whose reciprocal is b, c (cuda/reciprocal.h); of 32 bits
  kMinimum,
  kLess,  // whether a < b
  kLessOrEqual,
  kBoth,       // whether a and b
  kChoose,     // a ? b : c
  kIsAligned,  // whether each operand that is read in order begins at a multiple of `number` elements
  // ---- order. Loops and conditions reach up to the kEnd that belongs to them.
  kFor,   // the result is a, then a + c, … below b. `number` 1: of few turns, if any
  kLoop,  // repeats while, for all threads, a of its kEnd is true; a kWhile inside leaves it where its a is false
  kWhile,
  kIf,  // a
  kEnd,
  kBarrier,  // of the block
  // ---- elements
  kLoad,        // results: neighbors in memory, the first at address a
  kStore,       // of the operands after the address; as kLoad
  kLoadLanes,   // the element after the first `b + thread` from address a
  kStoreLanes,  // of c, there
  kStoreOnce,   // of b of the first thread, at address a
  kShuffle,     // a of the thread of the warp whose number differs in the bits `number`
  kParameter,   // parameter `number`, as MachineOp::kNumber
  kLength,      // index a as a floating number
  kCompute,     // `instruction` of the operands
  kAssign,      // gives the result, which has a value, that of a
};

struct LoopStatement {
  LoopOp op;
  std::vector<LoopVariable> results = {};
  std::vector<LoopVariable> operands = {};
  int64_t number = 0;
  Instruction instruction = {};  // its operands' numbers mean nothing
};

struct LoopProgram {
  KernelProgram program;
  std::vector<LoopStatement> statements;
  std::vector<c10::ScalarType> types;  // by variable; Undefined: an index or an address
  size_t words = 0;                    // of the arguments
};

}  // namespace sconce
