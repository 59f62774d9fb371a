#include "tools/sconce/commands/dump_calls.h"

#include "base/exception_message.h"
#include "base/nearest_name.h"
#include "report/number_format.h"
#include "tools/sconce/check/gradients.h"
#include "tools/sconce/report/errors.h"
#include "tools/sconce/report/memory_picture.h"
#include "tools/sconce/values/deep_copy.h"

#include "fusion/cpu/kernel_listing.h"
#include "fusion/kernels_on_device.h"

#include <sconce/status.h>

#include <ATen/Context.h>
#include <c10/core/GradMode.h>

#include <algorithm>
#include <iostream>

namespace sconce::cli {
namespace {

// The first calls ask for plans, and learn sizes.
constexpr int kCallsForKernels = 3;

c10::IValue run_call(const Module& module, const Call& call, const std::vector<c10::IValue>& arguments) {
  at::manual_seed(call.seed);
  return module.run_method(call.method, deep_copy(arguments));
}

void add_new(std::vector<DumpedKernel>& kernels, const c10::Device& device, const char* first_use) {
  const auto add = [&](DumpedKernel kernel) {
    const auto is_same = [&](const DumpedKernel& each) {
      return each.kernel == kernel.kernel && each.device_kernel == kernel.device_kernel;
    };
    if (std::none_of(kernels.begin(), kernels.end(), is_same)) {
      kernels.push_back(std::move(kernel));
    }
  };
  for (auto& kernel : KernelCache::instance().kernels()) {
    add({.kernel = std::move(kernel), .first_use = first_use});
  }
  if (const auto runtime = device.is_cpu() ? Refusal::because("it is no such device") : find_device_runtime(device.type())) {
    for (auto& kernel : device_kernels(**runtime).kernels()) {
      add({.device_kernel = std::move(kernel), .first_use = first_use});
    }
  }
}

void add_kernels_of_training(std::vector<DumpedKernel>& kernels, const Module& module, const Call& call,
                             const std::vector<c10::IValue>& arguments, const c10::Device& device) {
  for (int run = 0; run < kCallsForKernels; ++run) {
    const auto loss = sum_loss(differentiable_tensors(run_call(module, call, arguments)));
    add_new(kernels, device, "forward with gradients");
    if (!loss) {
      return;
    }
    try {
      loss->backward();
    } catch (const std::exception& failure) {
      std::cerr << "sconce: note: kernels of backward are left out, because it raises: " << one_line_message(failure)
                << "\n";
      return;
    }
    add_new(kernels, device, "backward");
  }
}

Json json_of_device_kernel(const CachedDeviceKernel& kernel, const std::string& first_use, size_t number) {
  const std::string program = kernel.grid().program.text();
  const std::string why_not = kernel.refusal();
  const std::string text = "# kernel " + std::to_string(number) + " of a GPU\n# first used in " + first_use +
                           "\n# program\n" + program + "# CUDA C++\n" + kernel.text() +
                           (why_not.empty() ? "" : "# not compiled: " + why_not + "\n");
  return Json{{"first_use", first_use}, {"program", program}, {"cuda", kernel.text()}, {"text", text}};
}

}  // namespace

std::string generic_plan_of(const Module& module, const std::string& method) {
  const GraphExecutor& executor = executor_of(module, method);
  return executor.explain().plans.front().text;
}

std::string plans_of(const Module& module, const Call& call, const std::vector<c10::IValue>& arguments) {
  const GraphExecutor& executor = executor_of(module, call.method);
  module.run_method(call.method, arguments);
  std::string text;
  for (const PlanExplanation& plan : executor.explain().plans) {
    text += "# generic plan" + (plan.specs.empty() ? "" : ": " + join(plan.specs, "; ")) + "\n" + plan.text + "\n";
  }
  return text;
}

std::vector<DumpedKernel> kernels_of(const Module& module, const Call& call, const std::vector<c10::IValue>& arguments,
                                     const c10::Device& device) {
  std::vector<DumpedKernel> kernels;
  {
    const c10::NoGradGuard no_grad;
    for (int run = 0; run < kCallsForKernels; ++run) {
      run_call(module, call, arguments);
    }
  }
  add_new(kernels, device, "a call without gradients");
  add_kernels_of_training(kernels, module, call, arguments, device);
  if (kernels.empty()) {
    const std::string why = device.is_cpu() ? capabilities().why_no_kernels : "";
    throw RefusedError("--format kernel: no kernel was made; " +
                       (why.empty() ? call.method + " has no adjacent pointwise operators that kernels compute, or this "
                                                    "machine has no kernels; 'sconce explain' says more"
                                    : why));
  }
  return kernels;
}

Json to_json(const DumpedKernel& kernel, size_t number) {
  if (kernel.device_kernel != nullptr) {
    return json_of_device_kernel(*kernel.device_kernel, kernel.first_use, number);
  }
  const KernelListing listing = listing_of(*kernel.kernel);
  const std::string text =
      "# kernel " + std::to_string(number) + ": " + join(listing.groups, "; ") + "\n# first used in " + kernel.first_use +
      "\n# made in " + format_duration(listing.seconds) + "\n# program, " + std::to_string(listing.lanes) + " lanes\n" +
      listing.program + "# LLVM IR\n" + listing.llvm_ir +
      (listing.refusal.empty() ? "# assembly\n" + listing.assembly : "# no assembly: " + listing.refusal + "\n");
  return Json{{"groups", listing.groups},     {"first_use", kernel.first_use},
              {"seconds", listing.seconds},   {"lanes", listing.lanes},
              {"program", listing.program},   {"llvm_ir", listing.llvm_ir},
              {"assembly", listing.assembly}, {"text", text}};
}

std::string picture_of_memory(const Module& module, const Call& call, const std::vector<c10::IValue>& arguments,
                              const std::string& title) {
  const GraphExecutor& executor = executor_of(module, call.method);
  {
    const c10::NoGradGuard no_grad;  // where gradients are recorded, arenas are those of differentiable subgraphs
    run_call(module, call, arguments);
  }
  const MemoryExplanation memory = executor.explain().plans.front().memory;
  if (!memory.has_layout) {
    throw RefusedError("--stage memory: the plan has no arena: no tensor of " + call.method +
                       " is a local result of a prepared step; 'sconce explain' says which operators are prepared");
  }
  return draw_memory(memory, title);
}

}  // namespace sconce::cli
