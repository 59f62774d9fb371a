// Dtypes and sizes of results, for operators about which LibTorch has no other source that C++ can ask (no kernel for meta
// tensors, or no shape function), or a wrong one.
#pragma once

#include <ATen/core/function_schema.h>

#include <cstdint>
#include <string_view>
#include <vector>

namespace sconce {

enum class ResultDtype : uint8_t {
  kUnknown,
  kFirst,     // of the first operand that is a tensor
  kReal,      // the same, of a complex one that of its parts
  kPromoted,  // to which LibTorch promotes all operands
  kBool,
  kInt64
};

struct ResultRule {
  std::string_view op;                   // qualified name of all overloads, or of one ("aten::lstm.input")
  std::vector<ResultDtype> dtypes = {};  // per result; those left out are unknown
  bool keeps_sizes = false;              // results have the sizes of the first operand that is a tensor
  // Else: a TorchScript function from the arguments to the sizes of the results. It takes the schema's arguments, sizes in
  // the place of tensors; those at the end may be left out, as may results.
  std::string_view sizes = {};
  bool differs_on_meta = false;     // what it does depends on the device: a run on meta tensors tells nothing
  bool accepts_sparse = false;      // what of sparse operands comes can be seen by a run on empty ones
  bool sizes_by_structure = false;  // of the numbers among its operands sizes do not depend, only on how many there are
};

// Null when the op is not on the list.
const ResultRule* find_result_rule(const c10::FunctionSchema& schema);

}  // namespace sconce
