// What sconce knows about operators beyond LibTorch's schemas: one row per operator.
//
// A missing field means "cannot", never a default: an operator without `primitive` and `body` is not fused, one without
// `grads` has no symbolic derivative. An operator without a row is legal: opaque, run through the dispatcher.
// Types and aliasing are the schema's and never restated here.
#pragma once

#include <ATen/core/function_schema.h>

#include <cstdint>
#include <span>
#include <string_view>
#include <vector>

namespace sconce {

// The pointwise operations and reductions that the code generators emit; everything else is expressed in them.
enum class Primitive : uint8_t {
  kNone,
  kAdd,
  kSub,
  kMul,
  kDiv,
  kNeg,
  kAbs,
  kExp,
  kLog,
  kTanh,
  kSqrt,
  kReciprocal,
  kSin,
  kCos,
  kErf,
  kMaximum,
  kMinimum,
  kWhere,
  kEqual,
  kLess,
  kGreater,
};

// d(argument) as a TorchScript expression over the schema's argument names, `result` and the incoming `grad`.
struct GradText {
  std::string_view argument;
  std::string_view text;
};

struct OpRow {
  std::string_view schema;                 // as LibTorch prints it: the key
  Primitive primitive = Primitive::kNone;  // what the generators emit for it
  std::string_view body = {};              // the op in terms of primitives: a TorchScript expression over its arguments
  std::vector<GradText> grads = {};        // its vjps; an argument without a row has no gradient
};

std::span<const OpRow> op_table();

// Null when the table has no row for the operator.
const OpRow* find_op_row(const c10::FunctionSchema& schema);

}  // namespace sconce
