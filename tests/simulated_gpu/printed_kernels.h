// Runs the CUDA text of kernels on the CPU, compiled by the compiler that has built the tests.
#pragma once

#include "tests/simulated_driver/fake_driver.h"

#include <string>

namespace sconce::testing {

// Returns the kernel of this name in the text, which takes one parameter of so many bytes. Threads of a block are fibers.
// They go on in turns until each is at a barrier or a shuffle, or has ended. Shared memory begins as NaN. Throws c10::Error
// if the text does not compile; the kernel throws if threads go wrong together, such as at a barrier that only some of them
// reach.
//
// Three lines of PTX are replaced, and CUDA's functions are the C library's: what differs there is not seen.
cuda::FakeDriver::KernelDefinition printed_kernel(const std::string& text, const std::string& name, size_t parameter_bytes);

}  // namespace sconce::testing
