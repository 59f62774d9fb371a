// Describes results, as text for people and as JSON for programs.
#pragma once

#include "report/json.h"

#include <ATen/core/ivalue.h>

#include <string>

namespace sconce::cli {

// Returns several lines. A tensor has its dtype, shape and first elements; a larger one also the minimum, maximum and mean,
// and the number of NaNs:
//
//   out: tuple of 2
//     [0]: float32[2, 1000]  min -2.1  max 3.4  mean 0.01
//          -0.52, 0.33, 1.2, ...
//     [1]: "done"
//
// The fields of a NamedTuple, `out: Stats(mean=..., label=...)`, are lines `.mean: ...` below it. Texts are escaped.
std::string describe(const c10::IValue& value, const std::string& name = "out");

// Returns the same as data. Tensors of up to 64 elements have all of them ("values", flat), larger ones the first ("first").
Json to_json(const c10::IValue& value);

// Returns "float32 [8, 16] contiguous", "int 3", "list of 4".
std::string describe_argument(const c10::IValue& argument);

}  // namespace sconce::cli
