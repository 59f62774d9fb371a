// Results for people and for programs.
#pragma once

#include "tools/sconce/report/json.h"

#include <ATen/core/ivalue.h>

#include <string>

namespace sconce::cli {

// Several lines. Tensors with dtype, shape and first elements; those with more than a few elements also with least, largest
// and mean value and the number of NaNs:
//
//   out: tuple of 2
//     [0]: float32[2, 1000]  min -2.1  max 3.4  mean 0.01
//          -0.52, 0.33, 1.2, ...
//     [1]: "done"
//
// The fields of a NamedTuple, `out: Stats(mean=..., label=...)`, are lines `.mean: ...` below it. Texts are escaped.
std::string describe(const c10::IValue& value, const std::string& name = "out");

// The same as data. Tensors of up to 64 elements with all of them ("values", flat), larger ones with the first ("first").
Json to_json(const c10::IValue& value);

}  // namespace sconce::cli
