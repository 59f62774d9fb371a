// KernelProgram: what a kernel computes, in operations of a machine.
//
//   input 0: Float elements            gelu(x * w) of rows, where each row has one w
//   input 1: Float one
//   output 0: Float = %9
//     %0 = load.Float 0
//     %1 = load.Float 1
//     %2 = mul.Float %0 %1
//     …
//
// The program describes one row of elements. The kernel runs it for all rows. An instruction computes one value per element,
// from values of the same element; a reduction computes one value for the row. The elements of a row need not lie side by
// side: of a sum over the first dimension, a row is a column of the matrix. The text is the key under which compiled code is
// kept.
#pragma once

#include <c10/core/ScalarType.h>
#include <c10/util/SmallVector.h>

#include <cstdint>
#include <string>
#include <vector>

namespace sconce {

enum class MachineOp : uint8_t {
  kLoad,     // of input `index`
  kNumber,   // parameter `index`: the same for all elements, given in each call
  kLiteral,  // `literal`
  kConvert,
  kAdd,
  kSub,
  kMul,
  kDiv,  // of integers: rounded to zero; the divisor must not be 0 or -1
  kFma,  // a * b + c, rounded once
  kNeg,
  kAbs,
  kSqrt,
  kFloor,
  kCeil,
  kTrunc,
  kRound,     // to the nearest integer, ties to even
  kCopysign,  // |a| with the sign of b
  kMin,       // a < b ? a : b; NaN if an operand is NaN
  kMax,       // a > b ? a : b; NaN if an operand is NaN
  kEqual,
  kNotEqual,
  kLess,
  kLessEqual,
  kGreater,
  kGreaterEqual,
  kAnd,
  kOr,
  kXor,
  kNot,
  kSelect,  // a ? b : c
  kExp,
  kExp2,
  kExpm1,
  kLog,
  kLog1p,
  kLog2,
  kLog10,
  kTanh,
  kErf,
  kErfc,
  kSin,
  kCos,
  kTan,
  kAsin,
  kAcos,
  kAtan,
  kSinh,
  kCosh,
  kAtanh,
  kAtan2,
  kFmod,  // the remainder with the sign of a, exact
  kPow,
  kLgamma,
  kHypot,
  kSigmoid,    // of float32
  kNormalCdf,  // the same: the distribution function of the normal distribution, within 2^-22
  kCall,       // of the scalar function `index`, with one operand or two (scalar_functions.h)
  kCallOfTwo,
  kShiftLeft,   // of integers, by less than their bits
  kShiftRight,  // the same; copies the sign
  kRemainder,   // of integers, with the sign of a; b must not be 0 or -1
  kSum,         // of the row: a reduction
  kProduct,     // the same
  kLargest,     // of the row: a reduction; NaN if an element is NaN
  kSmallest,    // the same
  kRowLength,   // the number of elements of a row, as a floating number
};

// Returns "add" for kAdd.
const char* name_of(MachineOp op);
// Returns how many operands the operation has.
size_t operand_count(MachineOp op);
// Returns whether a function of the mathematical library computes the operation.
bool is_library_function(MachineOp op);
// Returns whether the operation calls a scalar function.
bool is_call(MachineOp op);
// Returns whether the operation reduces a row to one value.
bool is_reduction(MachineOp op);
// Return the operation that combines two parts of what is reduced, and the value that leaves any other as it is.
MachineOp combining_op(MachineOp reduction);
double neutral_element(MachineOp reduction);

struct Instruction {
  MachineOp op;
  c10::ScalarType type;  // of the result; comparisons compute bool
  uint32_t a = 0;        // numbers of earlier instructions
  uint32_t b = 0;
  uint32_t c = 0;
  uint32_t index = 0;
  double literal = 0;   // of a literal of a floating type
  int64_t integer = 0;  // of a literal of any other type

  bool operator==(const Instruction&) const = default;
};

// Returns the numbers of the instructions whose values the instruction takes.
c10::SmallVector<uint32_t, 3> operands_of(const Instruction& instruction);

// Which elements the lanes of a vector take.
enum class LoopOrder : uint8_t {
  kRows,      // neighbors in a row
  kSegments,  // the same; a row is several pieces of equal length, which lie apart
  kColumns,   // one of each of several rows that lie side by side; a row may be in segments
};

// How the kernel steps through an operand from lane to lane.
enum class Access : uint8_t {
  kElements,  // element after element
  kOne,       // the same element for all lanes
  kStrided,   // by a stride that each call gives
};

struct KernelInput {
  c10::ScalarType type;
  Access access;
  // All elements of a row are the same one. Where lanes take neighbors in a row that has no segments, `access` says it.
  bool is_of_row = false;

  bool operator==(const KernelInput&) const = default;
};
struct KernelOutput {
  c10::ScalarType type;
  uint32_t value;                     // the instruction that computes it
  Access access = Access::kElements;  // or one for each row
};

struct KernelProgram {
  LoopOrder order = LoopOrder::kRows;
  std::vector<KernelInput> inputs;
  std::vector<KernelOutput> outputs;
  std::vector<c10::ScalarType> numbers;
  std::vector<Instruction> code;

  // Returns whether all elements of a row have the same element of the input.
  bool is_of_row(const KernelInput& input) const {
    return order == LoopOrder::kRows ? input.access == Access::kOne : input.is_of_row;
  }
  bool has_reductions() const;
  // Operands are the inputs, then the outputs.
  size_t operand_count() const { return inputs.size() + outputs.size(); }
  c10::ScalarType type_of_operand(size_t k) const {
    return k < inputs.size() ? inputs[k].type : outputs[k - inputs.size()].type;
  }
  Access access_of_operand(size_t k) const {
    return k < inputs.size() ? inputs[k].access : outputs[k - inputs.size()].access;
  }
  std::string text() const;
};

}  // namespace sconce
