// Runs of an operator on tensors without elements.
#pragma once

#include "ir/graph.h"
#include "shapes/abstract_value.h"
#include "shapes/size_arithmetic.h"

#include <ATen/core/ivalue.h>
#include <c10/util/ArrayRef.h>

#include <optional>
#include <vector>

namespace sconce {

// The results have the dtypes of those of a real run, and the sizes, strides and numbers of dimensions where it is said.
struct MetaRun {
  std::vector<c10::IValue> results;
  bool sizes_are_exact = false;
  bool strides_are_exact = false;
  bool ranks_are_exact = false;
};

// `tensors`: those among the operands and in lists. Returns nothing if the operator cannot run so, or if what it returns
// depends on what is not known of the operands. A number of dimensions that is not known is tried: dtypes depend on whether
// there are any, and no more.
std::optional<MetaRun> run_on_meta(const Node& node, const AbstractValues& operands,
                                   c10::ArrayRef<const TensorFacts*> tensors, SizeArithmetic& arithmetic);

// Returns the device of all of them, if they have one.
std::optional<c10::Device> common_device_of(c10::ArrayRef<const TensorFacts*> tensors);
bool are_strided(c10::ArrayRef<const TensorFacts*> tensors);

}  // namespace sconce
