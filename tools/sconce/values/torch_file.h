// Values as files that Python reads.
#pragma once

#include "tools/sconce/values/write_file.h"

#include <ATen/core/ivalue.h>

#include <vector>

namespace sconce::cli {

// Returns the bytes of a file that `torch.load` reads with its defaults, as `torch.save` would have written it. The value
// holds no object and no tensor with a gradient function. Throws c10::Error for what a pickle cannot hold.
//
// `torch::jit::pickle_save` wraps every list and dict in a call that restores its static type, which `torch.load` refuses to
// make with `weights_only=True`. Python knows no such types, and sconce finds them by what a method takes
// (fit_arguments.h).
std::vector<char> torch_file(const c10::IValue& value);
// Gives the same bytes to `sink`, part by part: no second copy of the tensors.
void write_torch_file(const c10::IValue& value, const ByteSink& sink);

}  // namespace sconce::cli
