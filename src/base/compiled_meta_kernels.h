// CompiledMetaKernels: within it, operators on meta tensors run by LibTorch's compiled kernels.
#pragma once

#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/core/stack.h>
#include <c10/core/impl/LocalDispatchKeySet.h>

namespace sconce {

// In a process that has imported torch, Python has replaced the meta kernels of 600 operators by functions of its own. They
// need Python's lock, import modules when they first run, take 100 times as long, and end the thread if Python ends
// meanwhile. An operator that has no other meta kernel raises c10::NotImplementedError here, as it does in a process without
// Python.
//
// Nests. For the current thread, until it is destroyed.
class CompiledMetaKernels {
 public:
  CompiledMetaKernels();
  ~CompiledMetaKernels();
  CompiledMetaKernels(const CompiledMetaKernels&) = delete;
  CompiledMetaKernels& operator=(const CompiledMetaKernels&) = delete;

  static bool is_active();
  // What the fallback of DispatchKey::Fake does with an operator while this is active.
  static void run(const c10::OperatorHandle& op, c10::DispatchKeySet keys, torch::jit::Stack& stack);

 private:
  const bool was_active_;
  const c10::impl::ForceDispatchKeyGuard include_;
};

}  // namespace sconce
