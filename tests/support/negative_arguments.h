// Negative twins: arguments that differ from valid ones in one place, most of which an operator rejects.
#pragma once

#include <ATen/core/function_schema.h>
#include <ATen/core/ivalue.h>

#include <string>
#include <vector>

namespace sconce::testing {

struct NegativeTwin {
  size_t position;                  // of the argument that differs
  std::string change;               // "argument 1 (dim) = 5", "argument 0 (self) has sizes [2, 3]"
  std::vector<c10::IValue> values;  // of all arguments; those at other positions are the valid ones themselves
};

// Returns the twins of a call, in a fixed order. Not every twin is rejected: LibTorch decides,
// so a test compares with it. By the type of the argument:
//
//   tensors        each size one more, one less and 1; a dimension more and one less; no elements; other dtypes; indices out
//                  of range
//   numbers        the next ones, negative ones, large ones, NaN and infinities, those that overflow a dtype
//   words          unknown ones
//   lists          empty, one element more and one less, an element twice (of dimensions also counted from the end), each
//                  element changed
//   optional ones  None
std::vector<NegativeTwin> negative_twins(const c10::FunctionSchema& schema, const std::vector<c10::IValue>& valid);

}  // namespace sconce::testing
