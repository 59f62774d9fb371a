// Where LibTorch's schemas do not tell the whole truth about memory (rule R1). The one list that every analysis reads.
#pragma once

#include <ATen/core/function_schema.h>
#include <ATen/core/ivalue.h>

#include <optional>
#include <string_view>
#include <vector>

namespace sconce {

// What holds for an operator although its schema has no mark for it.
struct SchemaCorrection {
  std::string_view op;                         // qualified name, all overloads
  std::vector<std::string_view> written = {};  // arguments whose memory the op may write
  std::string_view written_if = {};            // a bool argument: when it is false, the op writes none of these
  bool shared_results = false;                 // results may share memory with all arguments and with each other
  bool fresh_results = false;                  // results share no memory with arguments, see results_may_share_memory
};

// Null when the op is not on the list.
const SchemaCorrection* find_correction(const c10::FunctionSchema& schema);

// Whether the op may write the memory of its argument `index`: marked in the schema, or corrected.
bool writes_argument(const c10::FunctionSchema& schema, size_t index);

// Whether results without an alias mark may nevertheless share memory with arguments. True for operators that LibTorch
// composes of others (CompositeImplicitAutograd), where nothing checks the marks (`dropout(train=False)`, `einsum`,
// `broadcast_tensors` and `atleast_1d` return their argument or a view of it), for ops tagged `maybe_aliasing_or_mutating`,
// for those whose aliasing LibTorch leaves to a special case of its own analysis (`prim::AutogradAdd`), and for those of
// which the list says so; false for those that the list vouches for.
bool results_may_share_memory(const c10::FunctionSchema& schema);

// An operator that divides numbers, or takes remainders of them. Where integers have no quotient, LibTorch's kernels end the
// process: the least one by -1, and some by zero.
struct IntegerDivision {
  bool traps_on_zero;  // the others raise
  // Whether a call with these arguments ends the process.
  bool traps(c10::ArrayRef<c10::IValue> arguments) const;
};
// Nothing for any other operator.
std::optional<IntegerDivision> integer_division(const c10::FunctionSchema& op);

// Whether the call is a copy by `aten::to.prim_*` that names neither dtype nor device: LibTorch's kernel then reads a dtype
// that is not there. It means a copy of the same dtype on the same device.
bool copies_by_reading_no_dtype(const c10::FunctionSchema& schema, c10::ArrayRef<c10::IValue> arguments);

}  // namespace sconce
