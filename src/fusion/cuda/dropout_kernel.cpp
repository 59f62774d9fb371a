#include "fusion/cuda/dropout_kernel.h"

#include "fusion/cuda/cuda_text.h"
#include "fusion/cuda/device_functions.h"
#include "fusion/program/program_builder.h"

#include <algorithm>
#include <array>
#include <limits>
#include <memory>

namespace sconce {
namespace {

constexpr int64_t kBlockThreads = 256;     // of LibTorch's grid, and of ours
constexpr int64_t kNumbersOfCall = 4;      // of Philox
constexpr int64_t kVectorBytes = 16;       // that a thread of LibTorch's reads at once
constexpr int64_t kBlocksOfProcessor = 8;  // of our grid

#define SCONCE_DEVICE_TEXT(...) #__VA_ARGS__ "\n"
constexpr const char* kDropout =
#include "fusion/cuda/dropout.inc"
    ;
#undef SCONCE_DEVICE_TEXT

constexpr int64_t kMaxElementsOf32Bits = int64_t{1} << 30;

int64_t divided_up(int64_t a, int64_t b) { return (a + b - 1) / b; }

class DropoutKernel final : public PreparedKernel {
 public:
  DropoutKernel(const NodeGroup& group, DeviceKernelCache& kernels, c10::DeviceIndex device, bool is_blocking)
      : group_(group),
        fills_(writes_in_place(*group.nodes.front())),
        kernels_(kernels),
        device_(device),
        is_blocking_(is_blocking) {}

  bool prepare(const KernelArguments& arguments, KernelResults results) override {
    if (group_.operands.size() != 1 || !arguments.is_tensor(0)) {
      return false;
    }
    const at::Tensor& input = arguments.tensor(0);
    const c10::ScalarType dtype = input.scalar_type();
    elements_ = input.numel();
    if (!c10::isFloatingType(dtype) || !is_kernel_type(dtype) || elements_ == 0 || !input.is_non_overlapping_and_dense()) {
      return false;
    }
    limits_ = kernels_.runtime().limits(device_);
    plan_ = plan_dropout(elements_, input.element_size(), limits_);
    if (fills_) {
      plan_.vector = 1;
    }
    // LibTorch's bernoulli_ draws numbers of 53 bits for float64, and takes large tensors in parts.
    if (fills_ && (dtype == at::kDouble || input.nbytes() > std::numeric_limits<int32_t>::max())) {
      return false;
    }
    // One by one, LibTorch takes elements in the order of the sizes; in vectors, in the order of memory.
    if (plan_.threads == 0 || (plan_.vector == 1 && !input.is_contiguous())) {
      return false;
    }
    kernel_ = kernels_.find_text(dropout_text(dtype, plan_.vector, elements_ > kMaxElementsOf32Bits), device_, is_blocking_);
    for (size_t i = 0; i < results.size(); ++i) {
      results[i].place(input.sizes(), input.strides(), is_mask(i) ? at::kBool : dtype,
                       c10::Device(kernels_.runtime().type(), device_));
    }
    return kernel_->refusal().empty();
  }

  bool can_run(const KernelArguments& arguments) const override {
    if (kernel_->kernel() == nullptr) {
      kernels_.submit(kernel_, device_);
    }
    return kernel_->kernel() != nullptr && arguments.draws() != nullptr &&
           reinterpret_cast<uintptr_t>(arguments.data(0)) % kVectorBytes == 0;
  }
  bool is_being_compiled() const override { return kernel_->kernel() == nullptr && kernel_->refusal().empty(); }

  void run(const KernelArguments& arguments, KernelResults results) override {
    CapturedDraws& draws = *arguments.draws();
    const double p = group_.nodes.front()->input(1)->constant()->toDouble();
    DropoutParameter parameter{.input = fills_ ? nullptr : arguments.data(0),
                               .result = fills_ ? arguments.data(0) : nullptr,
                               .mask = nullptr,
                               .state = draws.state,
                               .drawn = draws.drawn,
                               .elements = elements_,
                               .threads = plan_.threads,
                               .vector = plan_.vector,
                               .kept = fills_ ? p : 1.0 - p};
    for (size_t i = 0; i < results.size(); ++i) {
      (is_mask(i) ? parameter.mask : parameter.result) = results[i].data;
    }
    draws.drawn += plan_.drawn;
    DeviceRuntime& runtime = kernels_.runtime();
    const std::array<void*, 1> parameters = {&parameter};
    runtime.launch(*kernel_->kernel(), launch_shape(), runtime.current_stream(device_), parameters);
  }

 private:
  bool is_mask(size_t result) const { return group_.results[result]->offset() == 1; }

  LaunchShape launch_shape() const {
    const int64_t calls = divided_up(elements_, std::min(plan_.vector, kNumbersOfCall));
    const int64_t blocks = std::min(divided_up(calls, kBlockThreads), kBlocksOfProcessor * limits_.multiprocessors);
    return {.grid = {static_cast<uint32_t>(blocks), 1, 1}, .block = {static_cast<uint32_t>(kBlockThreads), 1, 1}};
  }

  const NodeGroup& group_;
  const bool fills_;  // the operand, with 0 and 1: bernoulli_
  DeviceKernelCache& kernels_;
  const c10::DeviceIndex device_;
  const bool is_blocking_;
  DeviceLimits limits_;
  int64_t elements_ = 0;
  DropoutPlan plan_{};
  std::shared_ptr<CachedDeviceKernel> kernel_;
};

}  // namespace

std::string dropout_text(c10::ScalarType dtype, int64_t vector, bool is_wide) {
  const std::string index = is_wide ? "unsigned long long" : "unsigned";
  return std::string(device_prelude()) + kDropout + "extern \"C\" __global__ void " + kGridKernelName +
         "(DropoutCall call) {\n  const " + index + " threads = blockDim.x;\n  dropout<" + device_type(dtype) + ", " +
         std::to_string(vector) + ">(call, blockIdx.x * threads + threadIdx.x, threads * gridDim.x);\n}\n";
}

DropoutPlan plan_dropout(int64_t elements, size_t element_bytes, const DeviceLimits& limits) {
  DropoutPlan plan{};
  const int64_t blocks = std::min<int64_t>(divided_up(elements, kBlockThreads),
                                           limits.multiprocessors * (limits.multiprocessor_threads / kBlockThreads));
  plan.threads = kBlockThreads * blocks;
  plan.vector = kVectorBytes / static_cast<int64_t>(element_bytes);
  while (plan.vector > 1 && elements % plan.vector != 0) {
    plan.vector /= 2;
  }
  if (plan.threads != 0) {
    plan.drawn = static_cast<uint64_t>(((elements - 1) / (plan.threads * kNumbersOfCall) + 1) * kNumbersOfCall);
  }
  return plan;
}

KernelPtr make_dropout_kernel(const NodeGroup& group, DeviceKernelCache& kernels, c10::DeviceIndex device,
                              bool is_blocking) {
  return std::make_unique<DropoutKernel>(group, kernels, device, is_blocking);
}

}  // namespace sconce
