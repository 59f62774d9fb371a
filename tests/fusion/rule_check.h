// Calls of operators with rules, and their comparison with kernels.
#pragma once

#include "tests/fusion/element_values.h"
#include "tests/fusion/kernel_call.h"
#include "tests/support/rule_table.h"

#include <functional>
#include <optional>
#include <string>
#include <vector>

namespace sconce::testing {

// The operators that kernels compute element by element, sorted by name.
std::vector<c10::OperatorHandle> operators_with_rules();
// Those whose row of the table is in the part of the run: sweeps go over these.
std::vector<c10::OperatorHandle> operators_in_part();
// Those that write their first operand in place.
std::vector<c10::OperatorHandle> operators_in_place();
bool is_tensor_argument(const c10::Argument& argument);
// One operator, with the constants of variant `v`. With `gives_numbers`, each call gives the numbers. Returns nothing when
// the operator has no such variant.
std::optional<OperatorCall> variant_of(const c10::OperatorHandle& op, size_t v, bool gives_numbers = false);

// Arguments with tensors of these dtypes, by position among the tensors; those past the end have the last.
std::vector<c10::IValue> arguments_for(const OperatorCall& call, const std::vector<at::ScalarType>& dtypes, size_t variant,
                                       const std::function<at::Tensor(at::Tensor, size_t)>& shaped, int64_t count);
at::Tensor as_it_is(at::Tensor values, size_t position);

// Returns whether the program of a call with these arguments may compute other bits than the operator; nothing if no kernel
// computes the call.
std::optional<bool> may_differ(const OperatorCall& call, const std::vector<c10::IValue>& given);

// Compares calls of one operator on a kernel with the operator's. Of one that writes in place: also what it has written, and
// the tensor's version.
class RuleCheck {
 public:
  RuleCheck(const OperatorCall& call, size_t lanes);
  // Returns whether a kernel computed the result.
  bool compare(const std::vector<c10::IValue>& given);

 private:
  std::string described(const std::vector<c10::IValue>& given) const;

  const OperatorCall call_;
  KernelCall kernel_;
  const RuleRow* row_ = nullptr;
};

}  // namespace sconce::testing
