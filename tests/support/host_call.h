// Calls of operators on a device's tensors that the CPU's kernels run, in a process without the device.
#pragma once

#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/core/stack.h>
#include <c10/core/Allocator.h>
#include <c10/core/Device.h>
#include <c10/core/Storage.h>

#include <functional>

namespace sconce::testing {

// How a call's tensors are represented on the host, by tensors that the CPU's kernel reads and writes.
struct HostMemory {
  // Gives a storage of the device the contents of one that the kernel made, or has moved to make room. Called in the order
  // of the results; an operand comes before them.
  using Place = std::function<c10::Storage(const c10::Storage& made, c10::Device device)>;

  c10::DeviceType device = c10::kCUDA;  // of the tensors that are represented; others are passed as they are
  bool reads_zeros = false;             // The kernel gets zeros for the operands' elements, and its writes are lost.
  Place place;
};

// Runs the operator's kernel for the CPU on the operands that the stack holds, and replaces them by the results. Results
// that share an operand's memory on the host share it on the device.
void call_on_host(const c10::OperatorHandle& op, torch::jit::Stack& stack, const HostMemory& memory);

// Returns a copy of the last operands on the stack, of which those on the CUDA device are CPU tensors over their memory,
// which they do not own. Other tensors are copied.
torch::jit::Stack borrowed_operands(const c10::OperatorHandle& op, const torch::jit::Stack& stack);

// Returns a tensor with the storage, and the form of another.
at::Tensor tensor_over(c10::Storage storage, const at::Tensor& form);

// Memory of the host that counts as the device's.
class HostAllocator final : public c10::Allocator {
 public:
  // `current`: returns the thread's current device.
  explicit HostAllocator(c10::Device (*current)()) : current_(current) {}
  c10::DataPtr allocate(size_t bytes) override;
  c10::DeleterFnPtr raw_deleter() const override;
  void copy_data(void* to, const void* from, size_t bytes) const override { default_copy_data(to, from, bytes); }

 private:
  c10::Device (*const current_)();
};

// Returns a storage on the device over the memory of one on the host, which it keeps alive.
c10::Storage storage_over(const c10::Storage& host, c10::Device device);

// Returns a storage over memory that it does not own.
c10::Storage borrowed_storage(const void* data, size_t bytes, c10::Device device);

}  // namespace sconce::testing
