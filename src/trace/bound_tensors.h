// BoundTensors: tensors that a recording reads besides the arguments of a call: parameters, buffers, states of an optimizer.
#pragma once

#include "trace/trace_key.h"

#include <ATen/core/Tensor.h>
#include <c10/util/SmallVector.h>

#include <cstdint>
#include <span>
#include <vector>

namespace sconce {

// They are mostly the same objects in every call, whose forms are compared in a few instructions. A key is built and
// compared in tens of nanoseconds per tensor.
class BoundTensors {
 public:
  using Tensors = std::span<const at::Tensor>;

  BoundTensors() = default;
  // `arguments`: of the recorded call.
  BoundTensors(Tensors tensors, Tensors arguments);

  // Returns whether these tensors are the bound ones in the same form, and no argument shares memory with them. What can
  // change is whether one requires a gradient, and what `set_data` and writes of sizes change.
  bool hold(Tensors tensors, Tensors arguments) const;
  // Returns whether the recording serves these tensors in place of the bound ones: they have the same forms, and share
  // memory in the same way, with arguments too. `hold` is then true for them, unless arguments share memory with them.
  bool rebind(Tensors tensors, Tensors arguments);
  // Returns whether an argument lies in the storage of a bound tensor.
  bool share_memory_with(Tensors arguments) const;

 private:
  struct Form {
    const void* tensor;
    const void* storage;
    int64_t kind;
    uint64_t dispatch;
    int64_t offset;
    c10::SmallVector<int64_t, 8> sizes_and_strides;
  };
  static Form form_of(const at::Tensor& tensor);
  static bool has_form(const at::Tensor& tensor, const Form& form);
  static TraceKey key_of(Tensors arguments, Tensors tensors);
  void bind(Tensors tensors, Tensors arguments);

  TraceKey key_;
  std::vector<Form> forms_;
  std::vector<const void*> storages_;  // sorted
  bool are_apart_ = false;             // from the arguments
};

}  // namespace sconce
