// The oracle: a graph as LibTorch runs it.
#pragma once

#include <ATen/core/stack.h>

#include <memory>
#include <string>

namespace torch::jit {
struct Graph;
}

namespace sconce::testing {

// LibTorch's check of its graphs takes time with the square of their size.
constexpr size_t kMaxNodesToLint = 500;

class TorchGraph {
 public:
  // IR without objects, as sconce::print gives it without locations. Throws what LibTorch's parser throws.
  explicit TorchGraph(const std::string& text);
  ~TorchGraph();
  TorchGraph(TorchGraph&&) noexcept;

  // Node after node, no pass before. Replaces the inputs on the stack by the outputs.
  void interpret(torch::jit::Stack& stack);
  // LibTorch's default executor, which specializes and optimizes from the second call on.
  void execute(torch::jit::Stack& stack);

 private:
  struct Runners;
  std::unique_ptr<Runners> runners_;
};

}  // namespace sconce::testing
