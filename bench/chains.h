// Chains of one operator on tiny tensors: what an executor costs beside the operators' own work.
#pragma once

#include <torch/csrc/jit/api/module.h>

#include <string>

namespace sconce::bench {

constexpr int kChainLength = 100;

struct Chain {
  const char* name;
  const char* expression;  // of y, and of self.weight and self.bias where it reads them
  std::vector<int64_t> input;
};

inline const std::vector<Chain>& chains() {
  static const std::vector<Chain> all = {
      {"add", "torch.add(y, x)", {1, 8}},
      {"mul", "torch.mul(y, x)", {1, 8}},
      {"tanh", "torch.tanh(y)", {1, 8}},
      {"linear", "torch.linear(y, self.weight, self.bias)", {1, 64}},
      {"layer_norm", "torch.layer_norm(y, [64], self.bias, self.bias)", {1, 64}},
  };
  return all;
}

// forward(x): y = x, then kChainLength times y = expression.
inline torch::jit::Module make_chain(const Chain& chain) {
  torch::jit::Module module("Chain");
  module.register_parameter("weight", at::randn({64, 64}) / 8, false);
  module.register_parameter("bias", at::randn({64}), false);
  std::string source = "def forward(self, x):\n    y = x\n";
  for (int i = 0; i < kChainLength; ++i) {
    source += "    y = " + std::string(chain.expression) + "\n";
  }
  module.define(source + "    return y\n");
  module.eval();
  return module;
}

}  // namespace sconce::bench
