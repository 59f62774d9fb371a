// UndoneWrites: undoes what a rehearsal of a call writes and draws.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <span>
#include <vector>

namespace sconce {

// Gives tensors, and the CPU's generator of random numbers, what they held before, when `undo` is called or it goes.
class UndoneWrites {
 public:
  explicit UndoneWrites(std::span<const at::Tensor> tensors);
  ~UndoneWrites() { undo(); }
  UndoneWrites(const UndoneWrites&) = delete;
  UndoneWrites& operator=(const UndoneWrites&) = delete;

  void undo();
  // Lets everything be as it is now.
  void keep() { is_kept_ = true; }

 private:
  struct Before {
    at::Tensor tensor;
    at::Tensor contents;
    int64_t version;  // which autograd compares with what nodes have saved
  };
  std::vector<Before> before_;
  at::Tensor random_state_;
  bool is_kept_ = false;
};

}  // namespace sconce
