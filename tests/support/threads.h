// Threads: another number of LibTorch's intra-op threads in a scope.
#pragma once

#include <ATen/Parallel.h>

namespace sconce::testing {

class Threads {
 public:
  explicit Threads(int threads) : before_(at::get_num_threads()) { at::set_num_threads(threads); }
  ~Threads() { at::set_num_threads(before_); }
  Threads(const Threads&) = delete;
  Threads& operator=(const Threads&) = delete;

 private:
  const int before_;
};

}  // namespace sconce::testing
