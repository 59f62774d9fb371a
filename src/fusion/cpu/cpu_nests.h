// The back end of kernels for the CPU.
#pragma once

#include "fusion/program/kernel_backend.h"

#include <cstddef>
#include <memory>

namespace sconce {

// Makes code that computes `lanes` elements at a time (kernel_width.h); 0: none. With `is_blocking`, code is compiled when
// it is made. With `is_selective`, it leaves to the operators what they compute faster.
std::unique_ptr<KernelBackend> make_cpu_nests(size_t lanes, bool is_blocking, bool is_selective);

}  // namespace sconce
