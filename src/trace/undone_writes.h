// UndoneWrites: undoes what a rehearsal of a call writes and draws.
#pragma once

#include <ATen/core/Tensor.h>

#include <span>
#include <utility>
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
  std::vector<std::pair<at::Tensor, at::Tensor>> before_;  // tensor, contents
  at::Tensor random_state_;
  bool is_kept_ = false;
};

}  // namespace sconce
