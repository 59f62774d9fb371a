// UndoneWrites: undoes what a rehearsal of a call writes and draws.
#pragma once

#include <ATen/core/Generator.h>
#include <ATen/core/Tensor.h>

#include <cstdint>
#include <span>
#include <utility>
#include <vector>

namespace sconce {

// Gives tensors, and the generators of random numbers of the CPU and of the tensors' GPUs, what they held before, when
// `undo` is called or it goes.
class UndoneWrites {
 public:
  explicit UndoneWrites(std::span<const at::Tensor> tensors);
  ~UndoneWrites() { undo(); }
  UndoneWrites(const UndoneWrites&) = delete;
  UndoneWrites& operator=(const UndoneWrites&) = delete;

  void undo();
  // Lets everything be as it is now.
  void keep() { is_kept_ = true; }
  // The same for generators: nothing has drawn from them, and another thread may do so now.
  void keep_generators() { generators_.clear(); }

 private:
  struct Before {
    at::Tensor tensor;
    at::Tensor alias;  // of its memory, with the sizes and strides that it had
    at::Tensor contents;
    int64_t version;  // which autograd compares with what nodes have saved
  };
  void add_generator(at::Generator generator);

  std::vector<Before> before_;
  std::vector<std::pair<at::Generator, at::Tensor>> generators_;  // with their states
  bool is_kept_ = false;
};

}  // namespace sconce
