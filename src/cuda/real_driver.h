// The CUDA driver of this machine.
#pragma once

#include "base/expected.h"
#include "cuda/driver.h"

#include <memory>

namespace sconce::cuda {

// Opens libcuda.so.1 and finds every function of `Driver` in it. Refuses, in one sentence, when there is no driver or it is
// too old. Does not initialize it (`Driver::init`).
Expected<std::unique_ptr<Driver>> open_driver();

}  // namespace sconce::cuda
