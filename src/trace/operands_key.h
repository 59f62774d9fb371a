// OperandsKey: the trace key of the operands of a trace, most of which are the same tensors in every call.
#pragma once

#include "trace/trace_key.h"

#include <ATen/core/Tensor.h>
#include <c10/util/SmallVector.h>

#include <cstdint>
#include <span>
#include <vector>

namespace sconce {

// Of the arguments of a call, whose sizes are left open, and of the tensors that the trace has of its own: parameters,
// buffers, states of an optimizer.
class OperandsKey {
 public:
  using Tensors = std::span<const at::Tensor>;

  OperandsKey() = default;
  OperandsKey(Tensors arguments, Tensors own);
  // Returns whether these operands have the key, in the state of the calling thread.
  bool matches(Tensors arguments, Tensors own);

 private:
  struct Known {
    const void* tensor = nullptr;
    const void* storage = nullptr;
    int64_t kind = 0;
    uint64_t dispatch = 0;
    int64_t offset = 0;
    c10::SmallVector<int64_t, 8> form = {};  // sizes and strides
  };
  static TraceKey key_of(Tensors arguments, Tensors own);
  void note(Tensors arguments, Tensors own);
  bool are_known(Tensors arguments, Tensors own) const;
  bool are_apart(Tensors arguments) const;

  TraceKey key_;
  // ---- of the last operands that had the key; nothing if an argument shared memory with one of the trace's tensors
  TraceKey arguments_;
  std::vector<Known> own_;
  std::vector<const void*> storages_;  // of `own_`, in order
};

}  // namespace sconce
