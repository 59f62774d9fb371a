#include "tests/simulated_gpu/operators.h"

#include "tests/simulated_gpu/dropout.h"
#include "tests/simulated_gpu/operators_of_gpus.h"

#include "tests/support/host_call.h"

#include <ATen/core/enum_tag.h>
#include <c10/util/Exception.h>

#include <algorithm>
#include <atomic>
#include <cstring>
#include <set>
#include <string>
#include <utility>
#include <vector>

namespace sconce::testing {
namespace {

struct Recorded {
  void* data;
  size_t bytes;
};

void copy_bytes(void* to, const c10::Storage& from) {
  if (from.nbytes() != 0) {
    std::memcpy(to, from.data(), from.nbytes());
  }
}

bool is_mask(const c10::IValue& value) {
  return value.isTensor() && value.toTensor().defined() &&
         (value.toTensor().scalar_type() == c10::kBool || value.toTensor().scalar_type() == c10::kByte);
}

// Returns whether an operand is a list with masks: an index, whose elements LibTorch counts.
bool counts_elements_of_masks(const torch::jit::Stack& operands) {
  return std::any_of(operands.begin(), operands.end(), [](const c10::IValue& operand) {
    if (!operand.isList() || operand.isTensorList()) {
      return false;
    }
    const auto elements = operand.toListRef();
    return std::any_of(elements.begin(), elements.end(), is_mask);
  });
}

bool copies_between_devices(const std::string& name, const torch::jit::Stack& operands) {
  return name == "aten::copy_" && operands[0].toTensor().device() != operands[1].toTensor().device();
}

// Returns whether LibTorch's operator waits for the GPU, or computes random numbers.
bool cannot_be_captured(const c10::OperatorHandle& op, const torch::jit::Stack& operands) {
  const std::string& name = op.schema().name();
  const bool has_computed_sizes = op.hasTag(at::Tag::dynamic_output_shape) && name != "aten::index";
  return has_computed_sizes || op.hasTag(at::Tag::nondeterministic_seeded) || op.hasTag(at::Tag::data_dependent_output) ||
         counts_elements_of_masks(operands) || copies_between_devices(name, operands);
}

// A handle of cuBLAS and cuDNN, as LibTorch has them: a thread takes one that an ended thread has left, or makes one. They
// cannot be made while the current stream is captured.
class LibraryHandle {
 public:
  LibraryHandle() = default;
  ~LibraryHandle() { left_ += is_taken_ ? 1 : 0; }
  LibraryHandle(const LibraryHandle&) = delete;
  LibraryHandle& operator=(const LibraryHandle&) = delete;

  bool take(bool is_captured) {
    if (is_taken_) {
      return true;
    }
    size_t left = left_;
    while (left > 0 && !left_.compare_exchange_weak(left, left - 1)) {
    }
    is_taken_ = left > 0 || !is_captured;
    return is_taken_;
  }

 private:
  static inline std::atomic<size_t> left_{0};
  bool is_taken_ = false;
};
thread_local LibraryHandle library_handle;

bool uses_library(const c10::OperatorHandle& op) {
  static const std::set<std::string> names = {"aten::mm",
                                              "aten::addmm",
                                              "aten::bmm",
                                              "aten::baddbmm",
                                              "aten::addmv",
                                              "aten::mv",
                                              "aten::dot",
                                              "aten::addbmm",
                                              "aten::addr",
                                              "aten::convolution",
                                              "aten::_convolution",
                                              "aten::convolution_overrideable",
                                              "aten::convolution_backward"};
  return names.contains(op.schema().name());
}

bool has_tensor_of_the_host(const c10::OperatorHandle& op, const torch::jit::Stack& stack) {
  return std::any_of(stack.end() - static_cast<std::ptrdiff_t>(op.schema().arguments().size()), stack.end(),
                     [](const c10::IValue& operand) {
                       return operand.isTensor() && operand.toTensor().defined() && operand.toTensor().is_cpu();
                     });
}

bool makes_no_contents(const c10::OperatorHandle& op) {
  const std::string& name = op.schema().name();
  return name == "aten::empty" || name == "aten::empty_strided";
}

}  // namespace

void SimulatedOperators::run(const c10::OperatorHandle& op, torch::jit::Stack& stack) {
  ++count_;
  if (op.schema().name() == "aten::record_stream") {  // The CPU has no kernel for it.
    const c10::Stream stream = torch::jit::pop(stack).toStream();
    memory_.record_use(torch::jit::pop(stack).toTensor().storage().data_ptr(), bridge_.handle(stream));
    return;
  }
  const CUstream stream = bridge_.handle(bridge_.current_stream(0));
  const auto now = driver_.begin_host_work(stream);
  TORCH_CHECK(now, "CUDA error: ", now.refusal().reason);
  TORCH_CHECK(!uses_library(op) || library_handle.take(/*is_captured=*/!*now),
              "CUDA error: CUBLAS_STATUS_NOT_INITIALIZED when calling `cublasCreate(handle)`");
  TORCH_CHECK(!OperatorsOfGpus::contain(op) || !has_tensor_of_the_host(op, stack),
              "Expected all tensors to be on the same device, but found at least two devices, cuda:0 and cpu! (",
              op.schema().name(), ")");
  if (*now && is_dropout_that_draws(op, stack)) {
    drop_out(stack);
  } else if (*now && is_fill_that_draws(op, stack)) {
    fill(stack);
  } else if (*now) {
    run_now(op, stack);
  } else {
    capture(op, stack, stream);
  }
}

c10::Storage SimulatedOperators::allocate(size_t bytes) {
  return {c10::Storage::use_byte_size_t(), bytes, memory_.allocate(bytes), &memory_, /*resizable=*/true};
}

void SimulatedOperators::fill(torch::jit::Stack& stack) {
  torch::jit::pop(stack);
  const double p = torch::jit::pop(stack).toDouble();
  const at::Tensor& target = stack.back().toTensor();
  const DeviceLimits limits;
  const RandomState state = bridge_.draw(0, numbers_of_dropout(target.numel(), limits));
  at::Tensor on_host = tensor_over(borrowed_storage(target.storage().data(), target.storage().nbytes(), c10::kCPU), target);
  fill_as_on_gpu(on_host, p, state, limits);
}

void SimulatedOperators::drop_out(torch::jit::Stack& stack) {
  torch::jit::pop(stack);
  const double p = torch::jit::pop(stack).toDouble();
  const at::Tensor input = torch::jit::pop(stack).toTensor();
  const DeviceLimits limits;
  const RandomState state = bridge_.draw(0, numbers_of_dropout(input.numel(), limits));
  const auto on_host = [](const at::Tensor& tensor) {
    return tensor_over(borrowed_storage(tensor.storage().data(), tensor.storage().nbytes(), c10::kCPU), tensor);
  };
  const auto [result, mask] = drop_as_on_gpu(on_host(input), p, state, limits);
  for (const at::Tensor& made : {result, mask}) {
    c10::Storage storage = allocate(made.nbytes());
    copy_bytes(storage.mutable_data(), made.storage());
    torch::jit::push(stack, tensor_over(std::move(storage), made));
  }
}

void SimulatedOperators::run_now(const c10::OperatorHandle& op, torch::jit::Stack& stack) {
  const bool has_contents = !makes_no_contents(op);
  call_on_host(op, stack, {.place = [&](const c10::Storage& made, c10::Device /*device*/) {
                 c10::Storage storage = allocate(made.nbytes());
                 if (has_contents) {
                   copy_bytes(storage.mutable_data(), made);
                 }
                 return storage;
               }});
}

// Runs the operator on zeros to learn the forms of its results. Zeros are valid indices.
void SimulatedOperators::capture(const c10::OperatorHandle& op, torch::jit::Stack& stack, CUstream stream) {
  torch::jit::Stack operands = borrowed_operands(op, stack);
  if (cannot_be_captured(op, {stack.end() - static_cast<std::ptrdiff_t>(operands.size()), stack.end()})) {
    cuda::ignore(driver_.synchronize_stream(stream));  // as the operator would; it invalidates the capture
    TORCH_CHECK(false, "CUDA error: operation not permitted when stream is capturing (", op.schema().name(), ")");
  }
  std::vector<Recorded> recorded;
  call_on_host(op, stack, {.reads_zeros = true, .place = [&](const c10::Storage& made, c10::Device /*device*/) {
                             c10::Storage storage = allocate(made.nbytes());
                             recorded.push_back({storage.mutable_data(), storage.nbytes()});
                             return storage;
                           }});
  const bool is_view = recorded.empty() && !op.schema().is_mutable();
  if (is_view || makes_no_contents(op)) {
    return;
  }
  const auto replay = [op, operands = std::move(operands), recorded = std::move(recorded)] {
    torch::jit::Stack copy = operands;
    size_t next = 0;
    call_on_host(op, copy, {.device = c10::kCPU, .place = [&](const c10::Storage& made, c10::Device device) {
                              const Recorded& result = recorded.at(next++);
                              TORCH_CHECK(made.nbytes() == result.bytes, op.schema().name(), " made a result of ",
                                          made.nbytes(), " bytes, and of ", result.bytes, " when it was captured");
                              copy_bytes(result.data, made);
                              return borrowed_storage(result.data, result.bytes, device);
                            }});
  };
  const auto enqueued = driver_.enqueue_host_work(stream, replay);
  TORCH_CHECK(enqueued, "CUDA error: ", enqueued.refusal().reason);
}

}  // namespace sconce::testing
