// What `sconce dump` shows of a model after calls of it: plans, kernels, memory.
#pragma once

#include "report/json.h"
#include "tools/sconce/commands/model_options.h"

#include "fusion/cpu/kernel_cache.h"
#include "fusion/cuda/device_kernel_cache.h"

#include <memory>
#include <string>
#include <vector>

namespace sconce::cli {

std::string generic_plan_of(const Module& module, const std::string& method);
// Calls the model and returns its plans.
std::string plans_of(const Module& module, const Call& call, const std::vector<c10::IValue>& arguments);

// One of the CPU or one of another device.
struct DumpedKernel {
  std::shared_ptr<const CachedKernel> kernel;
  std::shared_ptr<const CachedDeviceKernel> device_kernel;
  std::string first_use;  // "a call without gradients", "forward with gradients", "backward"
};

// Calls the model without gradients, and with gradients and backward of the sum of its outputs, until its specialized plans
// have run. Returns the kernels that were made, on the CPU and on the device. A backward that raises is left out with a
// note. Requires: plans are compiled in the call that needs them.
std::vector<DumpedKernel> kernels_of(const Module& module, const Call& call, const std::vector<c10::IValue>& arguments,
                                     const c10::Device& device);
// Returns the kernel as program, LLVM IR and assembly, or as program and CUDA C++; together as "text", too.
Json to_json(const DumpedKernel& kernel, size_t number);

// Calls the model, so that the sizes of tensors are known, and draws the arena of its plan.
std::string picture_of_memory(const Module& module, const Call& call, const std::vector<c10::IValue>& arguments,
                              const std::string& title);

}  // namespace sconce::cli
