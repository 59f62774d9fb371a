#include "tests/simulated_gpu/simulated_gpu.h"

#include "base/compile_queue.h"
#include "cuda/cuda_runtime.h"
#include "fusion/cuda/cuda_text.h"
#include "fusion/kernels_on_device.h"
#include "tests/simulated_gpu/dropout.h"
#include "tests/simulated_gpu/printed_kernels.h"
#include "tests/support/loop_interpreter.h"

#include <ATen/ATen.h>
#include <c10/core/GradMode.h>

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <optional>
#include <utility>
#include <vector>

namespace sconce::testing {
namespace {

constexpr uint32_t kMaxBlocks = 2;  // they take turns

// Reads the struct of which a grid's text has the declaration.
LoopCall call_of(const GridProgram& grid, const char* parameter) {
  const auto read = [&parameter]<typename T>(T value) {
    std::memcpy(&value, parameter, sizeof value);
    parameter += sizeof value;
    return value;
  };
  LoopCall call;
  for (size_t k = 0; k < grid.program.operand_count(); ++k) {
    call.first.push_back(read(static_cast<void*>(nullptr)));
  }
  for (size_t k = 0; k < grid.program.numbers.size(); ++k) {
    call.numbers.push_back(read(int64_t()));
  }
  for (int64_t& number : call.numbers) {
    const auto* const memory = read(static_cast<const int64_t*>(nullptr));
    number = memory == nullptr ? number : *memory;
  }
  for (size_t k = 0; k < grid.words; ++k) {
    call.words.push_back(grid.form.is_wide ? read(int64_t()) : read(int32_t()));
  }
  return call;
}

void run_grid(const GridProgram& grid, const cuda::LaunchDimensions& dimensions, const char* parameter) {
  const LoopCall call = call_of(grid, parameter);
  LaunchShape shape;
  std::copy_n(dimensions.grid, 3, shape.grid.begin());
  std::copy_n(dimensions.block, 3, shape.block.begin());
  shape.shared_bytes = dimensions.shared_bytes;
  shape.grid[0] = std::min(shape.grid[0], kMaxBlocks);
  LoopInterpreter(grid, shape, call, grid.form.is_wide).run();
}

// Runs the calls of a list, each as a grid of its own.
void run_list(const GridProgram& grid, cuda::LaunchDimensions dimensions, const char* list) {
  const char* const ends = list + calls_of_list(grid) * bytes_of_parameter(grid);
  uint32_t first = 0;
  for (size_t i = 0; first < dimensions.grid[0]; ++i) {
    uint32_t end = 0;
    std::memcpy(&end, ends + i * sizeof end, sizeof end);
    cuda::LaunchDimensions each = dimensions;
    each.grid[0] = end - first;
    run_grid(grid, each, list + i * bytes_of_parameter(grid));
    first = end;
  }
}

// Returns the kernel of this name in the text of a grid.
std::optional<cuda::FakeDriver::KernelDefinition> kernel_of(DeviceKernelCache& kernels, const std::string& text,
                                                            const std::string& name, bool is_printed) {
  if (auto dropout = dropout_kernel_of(text)) {
    return is_printed ? std::optional(printed_kernel(text, name, dropout->argument_bytes.front())) : dropout;
  }
  for (const auto& each : kernels.kernels()) {
    if (each->text() != text) {
      continue;
    }
    const GridProgram& grid = each->grid();
    const bool is_list = name == kListKernelName;
    const size_t bytes = is_list ? parameter_of_list(grid, {}).size() : bytes_of_parameter(grid);
    if (is_printed) {
      return printed_kernel(text, name, bytes);
    }
    const auto run =
        is_list ? run_list : [](const GridProgram& of, cuda::LaunchDimensions dimensions, const char* parameter) {
          run_grid(of, dimensions, parameter);
        };
    return cuda::FakeDriver::KernelDefinition{{bytes},
                                              [each, run](const cuda::LaunchDimensions& dimensions, void* const* arguments) {
                                                run(each->grid(), dimensions, static_cast<const char*>(arguments[0]));
                                              }};
  }
  return std::nullopt;
}

}  // namespace

std::string SimulatedGpu::simulated_compiler() {
  const char* const directory = std::getenv("SCONCE_PLUGINS_DIR");
  return (directory == nullptr ? "." : directory) + std::string("/simulated_nvrtc.so");
}

SimulatedGpu::Kernels SimulatedGpu::default_kernels() {
  return std::getenv("SCONCE_PRINTED_KERNELS") == nullptr ? Kernels::kStatements : Kernels::kPrinted;
}

SimulatedGpu::SimulatedGpu(const std::string& compiler, Kernels kernels_run)
    : driver_(std::make_shared<cuda::FakeDriver>()),
      bridge_(std::make_shared<cuda::FakeTorchBridge>(*driver_)),
      memory_(std::make_shared<DeviceMemory>(*driver_, *bridge_)),
      served_{*driver_, *bridge_, *memory_},
      operators_(std::make_unique<SimulatedOperators>(*driver_, *bridge_, *memory_)) {
  SimulatedDeviceGuard& guard = SimulatedDeviceGuard::of_process();
  guard.serve(&served_);
  registrations_ = std::make_unique<CudaRegistrations>(
      *memory_, guard, [this](const c10::OperatorHandle& op, torch::jit::Stack& stack) { operators_->run(op, stack); });
  runtime_ = cuda::make_cuda_runtime(driver_, bridge_, {.file = compiler, .directories = {}});
  driver_->define_kernels([this, is_printed = kernels_run == Kernels::kPrinted](const std::string& text,
                                                                                const std::string& name) {
    return name == kGridKernelName || name == kListKernelName ? kernel_of(kernels(), text, name, is_printed) : std::nullopt;
  });
  in_place_ = std::make_unique<DeviceRuntimeInPlace>(*runtime_);
}

SimulatedGpu::~SimulatedGpu() {
  CompileQueue::of_process().run_and_wait([] {});  // jobs that compile for this runtime
  in_place_.reset();
  registrations_.reset();
  SimulatedDeviceGuard::of_process().serve(nullptr);
  memory_->close();
  runtime_.reset();
  bridge_.reset();  // Streams end, and do what they were given.
}

DeviceKernelCache& SimulatedGpu::kernels() { return device_kernels(*runtime_); }

at::Tensor SimulatedGpu::tensor(const at::Tensor& values) {
  const at::NoGradGuard no_grad;
  return values.to(at::Device(at::kCUDA, 0));
}

at::Tensor SimulatedGpu::late_tensor(const at::Tensor& values) {
  const at::NoGradGuard no_grad;
  at::Tensor late = at::empty_like(values, values.options().device(at::Device(at::kCUDA, 0)));
  const auto enqueued = driver_->enqueue_host_work(
      bridge_->handle(bridge_->current_stream(0)),
      [data = late.mutable_data_ptr(), from = values.clone()] { std::memcpy(data, from.const_data_ptr(), from.nbytes()); });
  TORCH_CHECK(enqueued, "CUDA error: ", enqueued.refusal().reason);
  return late;
}

at::Tensor SimulatedGpu::values(const at::Tensor& tensor) {
  const at::NoGradGuard no_grad;
  return tensor.to(at::kCPU);
}

size_t SimulatedGpu::driver_calls(const std::string& function) const {
  const std::vector<std::string> calls = driver_->calls();
  return static_cast<size_t>(std::count(calls.begin(), calls.end(), function));
}

}  // namespace sconce::testing
