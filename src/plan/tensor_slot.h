// TensorSlot: a tensor of a frame, over memory that may change from run to run.
#pragma once

#include <ATen/core/Tensor.h>
#include <ATen/core/ivalue.h>

#include <cstdint>

namespace sconce {

class Node;

// The value that a slot holds: a result of the operator.
struct SlotOwner {
  const Node* op;
  bool is_view;
};

// A shell is a tensor of a frame's own over memory that it does not own. Kernels keep references to shells between runs.
// A shell is a normal tensor without autograd metadata; it owns its StorageImpl, which no tensor outside the frame shares.
at::Tensor make_shell(c10::IntArrayRef sizes, c10::IntArrayRef strides, at::ScalarType dtype,
                      c10::Device device = c10::kCPU);

// Return memory, and a tensor of the shell's form, on a device. LibTorch's allocator for the device gives them out. It keeps
// what is freed for later work of the stream that is current now, so a caller that uses the memory on another stream must
// order the two. Elements are not initialized.
c10::DataPtr allocate_on(c10::Device device, size_t bytes);
at::Tensor empty_like_shell(const at::Tensor& shell);

// Returns whether both tensors have the same sizes, strides, dtype and device.
bool have_same_form(const at::Tensor& a, const at::Tensor& b);

// Gives the shell another form. Makes a new one if there is none, or if something else holds it: a slot or a kernel counts
// on the old form.
void reshape_shell(at::Tensor& shell, c10::IntArrayRef sizes, c10::IntArrayRef strides, at::ScalarType dtype,
                   c10::Device device);

// Lets the shell's storage begin at `data`, which is memory of the shell's device.
inline void point_storage_at(const at::Tensor& shell, void* data) {
  c10::StorageImpl& storage = *shell.unsafeGetTensorImpl()->unsafe_storage().unsafeGetStorageImpl();
  storage.set_data_ptr_noswap(c10::DataPtr(data, storage.data_ptr().device()));
}

// The result of a prepared step that does not escape. Its memory lies in the frame's arena where the plan's layout has room
// for it, else in a block of its own that is freed after the last use.
struct TensorSlot {
  void* data = nullptr;       // of the first element, during its lifetime in a run
  uint64_t stamp = 0;         // changes whenever sizes, strides, dtype or device change; 0: no tensor yet
  at::Tensor shell;           // undefined while stamp is 0
  size_t bytes = 0;           // that the tensor needs; 0 for a view, which shares its base's memory
  bool is_of_kernel = false;  // a kernel has placed the shell, which may be another slot's, or a view of it
  bool in_arena = false;      // `data` lies in the arena, and stays the same from run to run
  c10::DataPtr block;         // the block of its own
  c10::IValue held;           // keeps memory alive that another tensor owns: a view's base, or what an ordinary step made
};

}  // namespace sconce
