// The CUDA driver of this machine.
#pragma once

#include "cuda/driver.h"

#include <memory>
#include <string>

namespace sconce::cuda {

// Opens libcuda.so.1 and finds every function of `Driver` in it. Null when there is no driver or it is too old, with
// the reason in one sentence. Does not initialize it (`Driver::init`).
std::unique_ptr<Driver> open_driver(std::string* why_not);

}  // namespace sconce::cuda
