// The kind of an operator, for code that interprets programs.
#pragma once

#include <cstdint>

namespace sconce {

// Steps, abstract evaluation and folding switch on it. One opcode serves every type that the operation
// exists for: kAdd adds numbers and tensors and concatenates lists. The operand types tell them apart.
enum class Opcode : uint8_t {
  kOpaque,  // no opcode: the operator is called, never interpreted

  // ---- the language's own nodes; they have no schema
  kConstant,
  kIf,
  kLoop,
  kListConstruct,
  kListUnpack,
  kTupleConstruct,
  kTupleUnpack,
  kTupleIndex,
  kTupleSlice,
  kDictConstruct,
  kGetAttr,
  kSetAttr,
  kCreateObject,
  kCallMethod,
  kCallFunction,
  kIsInstance,
  kUncheckedCast,
  kUninitialized,
  kEnter,
  kExit,
  kFork,
  kAwaitable,
  kGradOf,
  kConstantChunk,
  kParam,
  kReturn,
  kKernel,  // sconce's own: ir/kernel_node.h
  // ---- sconce's composites; their schema is made from the node
  kDelegate,
  kDifferentiable,
  kCaptured,
  kAutocastCast,

  // ---- operators that plans run by steps of their own
  kUnwrapOptional,
  kRaise,
  kWarn,
  kToList,
  kWait,
  kSort,
  kSorted,
  kRequiresGrad_,
  kDetach,

  // ---- containers: lists, dicts, strings
  kGetItem,
  kSetItem,
  kAppend,
  kExtend,
  kInsert,
  kPop,
  kDelete,
  kReverse,
  kClear,
  kSlice,
  kCopyContainer,
  kMakeList,
  kMakeDict,
  kKeys,
  kValues,
  kItems,
  kGetOrDefault,
  kContains,
  kLength,

  // ---- what a tensor says about itself
  kDim,
  kSize,
  kNumel,
  kDtype,
  kDevice,
  kLayout,
  kIsFloatingPoint,
  kRequiresGrad,
  kIsCuda,
  kIsNested,

  // ---- what the thread says about itself
  kIsGradEnabled,
  kIsAutocastEnabled,
  kIsAutocastCpuEnabled,

  // ---- numbers only
  kIs,
  kIsNot,
  kNot,
  kFloorDivideNumbers,
  kDivMod,
  kInt,
  kFloat,
  kMax,
  kMin,

  // ---- joins and cuts of tensors
  kCat,
  kStack,
  kUnbind,
  kIndexed,
  kSelect,

  // ---- what analyses and passes look for by itself
  kBatchNorm,
  kBatchedProduct,
  kFlatten,
  kTransposeMatrix,

  // ---- primitives: element by element, on numbers and tensors. The bodies of other pointwise operators (OpRow::body) are
  // expressed in them.
  kAdd,
  kSub,
  kMul,
  kDiv,
  kNeg,
  kAbs,
  kRemainder,
  kPow,
  kExp,
  kExpm1,
  kLog,
  kLog1p,
  kTanh,
  kSqrt,
  kReciprocal,
  kSin,
  kCos,
  kErf,
  kFloor,
  kCeil,
  kRound,
  kTrunc,
  kMaximum,
  kMinimum,
  kWhere,
  kEqual,
  kNotEqual,
  kLess,
  kLessEqual,
  kGreater,
  kGreaterEqual,
  kLogicalNot,
  kAnd,
  kOr,
  kCast,
};

constexpr bool is_language(Opcode opcode) { return opcode >= Opcode::kConstant && opcode <= Opcode::kKernel; }

// Whether the node runs code of the user's: a function, a method, a context manager, a task.
constexpr bool runs_user_code(Opcode opcode) {
  return opcode == Opcode::kCallFunction || opcode == Opcode::kCallMethod || opcode == Opcode::kEnter ||
         opcode == Opcode::kExit || opcode == Opcode::kFork || opcode == Opcode::kAwaitable || opcode == Opcode::kWait;
}

constexpr bool is_comparison(Opcode opcode) { return opcode >= Opcode::kEqual && opcode <= Opcode::kGreaterEqual; }

}  // namespace sconce
