// What c10d's ProcessGroupGloo.hpp needs of gloo. LibTorch's wheel has the library, inside of libtorch_cpu, and c10d's
// headers, but not gloo's. Every object of these classes is made by code inside the library.
#pragma once

#include <chrono>
#include <memory>

namespace gloo {

class Context {
 public:
  void setTimeout(std::chrono::milliseconds timeout);
};

}  // namespace gloo
