// Packed weights and the caller's memory: arguments, and weights that the program writes in every way that C++ has.
#include <sconce/module.h>

#include "kernels/packed/checksums.h"
#include "kernels/packed/packed_weights.h"
#include "tests/support/environment_number.h"
#include "tests/support/graphs.h"

#include <ATen/ATen.h>
#include <c10/core/GradMode.h>
#include <gtest/gtest.h>
#include <torch/csrc/jit/api/module.h>
#include <torch/optim/adam.h>
#include <torch/optim/sgd.h>

#include <cmath>
#include <random>
#include <string>
#include <thread>
#include <utility>
#include <vector>

namespace sconce::testing {
namespace {

constexpr int kCalls = 6;  // enough to pack the weights
constexpr double kTolerance = 1e-4;

using Attributes = std::vector<std::pair<std::string, c10::IValue>>;

std::string forward_of(const std::string& expression, const std::string& parameters = "x") {
  return "def forward(self, " + parameters + "):\n    return " + expression + "\n";
}

Module accelerated(const torch::jit::Module& script) {
  return accelerate(script, Options().compile(CompileMode::kBlocking));
}

// The caller fills one buffer through its pointer, call after call.
TEST(PackedWrites, ArgumentsAreReadInEachCall) {
  const at::NoGradGuard no_grad;
  at::manual_seed(1);
  struct Case {
    std::string expression;
    std::vector<at::Tensor> arguments;
  };
  const at::Tensor square = at::randn({40, 40});
  for (const Case& each : std::vector<Case>{
           {"torch.mm(self.w, x)", {at::zeros({40, 24})}},
           {"torch.matmul(y, x)", {at::zeros({40, 24}), at::randn({3, 40})}},
           {"torch.linear(y, x, self.b)", {at::zeros({40, 40}), square}},
           {"torch.linear(y, self.w, x)", {at::zeros({40}), square}},
           {"torch.addmm(x, y, self.w)", {at::zeros({40}), square}},
           {"torch.conv2d(y, x)", {at::zeros({16, 8, 3, 3}), at::randn({1, 8, 9, 9})}},
           {"torch.conv1d(y, x)", {at::zeros({16, 8, 3}), at::randn({1, 8, 30})}},
           {"torch.mm(self.w, [x, x][1])", {at::zeros({40, 24})}},
           {"torch.mm(self.w, x if x.dim() == 2 else self.b)", {at::zeros({40, 24})}},
       }) {
    const bool has_two = each.arguments.size() == 2;
    const torch::jit::Module script =
        module_of(forward_of(each.expression, has_two ? "x, y" : "x"), {{"w", at::randn({40, 40})}, {"b", at::randn({40})}});
    const Module module = accelerated(script.deepcopy());
    float* const elements = each.arguments[0].mutable_data_ptr<float>();
    std::vector<c10::IValue> arguments(each.arguments.begin(), each.arguments.end());
    for (int call = 0; call < 3 * kCalls; ++call) {
      elements[7 + call] = 1;
      EXPECT_TRUE(agree(module.forward(arguments), script.get_method("forward")(arguments), kTolerance))
          << each.expression << ", call " << call;
    }
  }
}

// In evaluation mode, dropout's result is the convolution's, tensor and all. In training it has memory of its own.
TEST(PackedWrites, OperatorsThatReturnedTheirOperandGetMemoryOfTheirOwn) {
  const at::NoGradGuard no_grad;
  at::manual_seed(1);
  const at::Tensor x = at::randn({2, 16, 12});
  for (const char* const after : {"torch.tanh", "torch.relu"}) {
    const torch::jit::Module script =
        module_of(forward_of(std::string(after) + "(torch.dropout(torch.conv1d(x, self.w, self.b), 0.5, self.training))"),
                  {{"w", at::randn({16, 16, 1})}, {"b", at::randn({16})}, {"training", false}});
    const torch::jit::Module twin = script.deepcopy();
    Module module = accelerate(script, Options().compile(CompileMode::kNever));
    for (int call = 0; call < 4 * kCalls; ++call) {
      const bool trains = call >= 2 * kCalls;
      module.train(trains);
      torch::jit::Module(twin).train(trains);
      at::manual_seed(call);
      const at::Tensor got = module.forward({x}).toTensor();
      at::manual_seed(call);
      EXPECT_TRUE(agree(got, twin.get_method("forward")({x}), kTolerance)) << after << ", call " << call;
    }
  }
}

// A method keeps an argument, whose buffer the caller fills again. Another method reads it.
TEST(PackedWrites, ArgumentsThatAMethodKeepsAreReadInEachCall) {
  const at::NoGradGuard no_grad;
  at::manual_seed(5);
  const at::Tensor buffer = at::randn({64, 64});
  torch::jit::Module script = module_of(
      forward_of("torch.mm(x, self.kept)") + "def put(self, x):\n    self.keep(x)\ndef keep(self, x):\n    self.kept = x\n",
      {{"kept", buffer}});
  script.eval();
  for (const bool frozen : {false, true}) {
    const Module module = accelerate(script, Options().compile(CompileMode::kBlocking).frozen(frozen));
    const at::Tensor x = at::randn({4, 64});
    module.run_method("put", {buffer});
    for (int call = 0; call < 3 * kCalls; ++call) {
      buffer.data_ptr<float>()[call * 37 + 5] += 1;
      EXPECT_TRUE(agree(module.forward({x}), at::mm(x, buffer), kTolerance)) << "frozen: " << frozen << ", call " << call;
    }
  }
}

// Optimizers of LibTorch, driven by calls of which sconce knows nothing. Gradients are gone when sconce runs again.
TEST(PackedWrites, TrainingElsewhereIsSeen) {
  at::manual_seed(2);
  for (const bool clears : {true, false}) {
    const at::Tensor weight = at::randn({64, 64}).requires_grad_();
    const torch::jit::Module script = module_of(forward_of("torch.mm(x, self.w)"), {{"w", weight}});
    const Module module = accelerated(script);
    const at::Tensor x = at::ones({4, 64});
    torch::optim::SGD sgd(std::vector<at::Tensor>{weight}, 1.0);
    for (int step = 0; step < 4; ++step) {
      {
        const at::NoGradGuard no_grad;
        for (int call = 0; call < kCalls; ++call) {
          EXPECT_TRUE(at::allclose(module.forward({x}).toTensor(), at::mm(x, weight), kTolerance, kTolerance))
              << "step " << step << ", call " << call;
        }
      }
      // One column has a gradient, none of the elements that each call compares.
      at::mm(at::randn({8, 64}), weight).select(1, 3).sum().backward();
      sgd.step();
      if (clears) {
        sgd.zero_grad();
      }
    }
  }
}

TEST(PackedWrites, AreSeenAfterSomeCallsOrWhenTold) {
  const at::NoGradGuard no_grad;
  at::manual_seed(3);
  const at::Tensor weight = at::randn({200, 100});
  const torch::jit::Module script =
      module_of(forward_of("torch.linear(x, self.w, self.b)"), {{"w", weight}, {"b", at::randn({200})}});
  Module module = accelerated(script);
  const at::Tensor x = at::randn({4, 100});
  const auto is_current = [&] {
    return static_cast<bool>(agree(module.forward({x}), script.get_method("forward")({x}), kTolerance));
  };
  for (int call = 0; call < kCalls; ++call) {
    EXPECT_TRUE(is_current());
  }
  for (const int64_t element : {1, 2'000, 19'998}) {
    weight.data_ptr<float>()[element] += 100;
    int64_t calls = 1;
    while (!is_current()) {
      ++calls;
      ASSERT_LE(calls, 2 * weight.numel() / Checksums::kElements);
    }
    for (int call = 0; call < 80; ++call) {  // until it is packed again
      EXPECT_TRUE(is_current());
    }
    weight.data_ptr<float>()[element] -= 50;
    module.weights_changed();
    EXPECT_TRUE(is_current());
  }
}

TEST(PackedWrites, FrozenModulesAreNotTold) {
  const at::NoGradGuard no_grad;
  torch::jit::Module script = module_of(forward_of("torch.mm(x, self.w)"), {{"w", at::randn({8, 8})}});
  script.eval();
  Module module = accelerate(script, Options().frozen(true));
  module.forward({at::ones({2, 8})});
  EXPECT_NE(message_of([&] { module.weights_changed(); }).find("the module is frozen"), std::string::npos);
}

TEST(PackedWrites, ChecksumsSeeEachBit) {
  at::manual_seed(4);
  for (const int64_t count : {1, 7, 63, 64, 65, 1000}) {
    const at::Tensor tensor = at::randn({count});
    const Checksums checksums(*tensor.unsafeGetTensorImpl());
    auto* const bits = static_cast<uint32_t*>(tensor.data_ptr());
    for (int64_t i = 0; i < count; ++i) {
      for (const uint32_t flip : {1U, 1U << 31}) {
        bits[i] ^= flip;
        const int64_t block = i / Checksums::kElements;
        EXPECT_FALSE(checksums.are_still(*tensor.unsafeGetTensorImpl(), block, block + 1));
        EXPECT_TRUE(checksums.are_still(*tensor.unsafeGetTensorImpl(), 0, block));
        EXPECT_TRUE(checksums.are_still(*tensor.unsafeGetTensorImpl(), block + 1, checksums.blocks()));
        bits[i] ^= flip;
      }
    }
    EXPECT_TRUE(checksums.are_still(*tensor.unsafeGetTensorImpl(), 0, checksums.blocks()));
  }
}

TEST(PackedWrites, AMarkTellsTraining) {
  const at::Tensor weight = at::randn({3}).requires_grad_();
  const c10::TensorImpl& impl = *weight.unsafeGetTensorImpl();
  const AccumulatorStamp before(impl);
  EXPECT_TRUE(before.is_still(impl));
  {
    const at::NoGradGuard no_grad;
    weight.mul(2);
  }
  EXPECT_TRUE(before.is_still(impl));
  {
    const at::Tensor recorded = weight.mul(2).sum();
    EXPECT_FALSE(before.is_still(impl));
    EXPECT_FALSE(AccumulatorStamp(impl).is_still(impl));  // backward may come
  }
  const AccumulatorStamp between(impl);
  EXPECT_TRUE(between.is_still(impl));
  weight.mul(2).sum().backward();
  EXPECT_FALSE(between.is_still(impl));
  EXPECT_FALSE(AccumulatorStamp(impl).is_still(impl));  // an optimizer's step may come
  weight.mutable_grad().reset();
  EXPECT_FALSE(between.is_still(impl));
  EXPECT_TRUE(AccumulatorStamp(impl).is_still(impl));
}

// ---- random modules, and random writes between calls

class WritingProgram {
 public:
  explicit WritingProgram(uint64_t seed) : random_(seed) {
    at::manual_seed(seed);
    const int64_t features = 8 + pick(60);
    x_ = at::randn({1 + pick(9), features});
    for (const char* name : {"a", "b", "c"}) {
      const at::Tensor weight = scaled({features, features});
      weights_.push_back(weight.requires_grad_(pick(2) == 0));
      attributes_.emplace_back(name, weights_.back());
    }
    biases_.push_back(at::randn({features}).requires_grad_(pick(2) == 0));
    attributes_.emplace_back("d", biases_.back());
    if (pick(4) == 0) {
      attributes_[1].second = weights_[0];  // tied
      weights_[1] = weights_[0];
    }
    std::string body = "y = x\n";
    for (int i = 0; i < 3; ++i) {
      static constexpr const char* kLayers[] = {"y = torch.linear(y, self.%s, self.d)",
                                                "y = torch.tanh(torch.mm(y, self.%s))",
                                                "y = torch.addmm(self.d, y, self.%s)", "y = torch.matmul(y, self.%s) * 0.1",
                                                "y = torch.mm(x, z) + torch.linear(y, self.%s)"};
      std::string layer = kLayers[pick(5)];
      layer.replace(layer.find("%s"), 2, std::string(1, static_cast<char>('a' + pick(3))));
      body += "    " + layer + "\n";
    }
    z_ = scaled({features, features});
    text_ = "def forward(self, x, z):\n    " + body + "    return y\n";
    script_ = module_of(text_, attributes_);
  }

  void run() {
    const Module module = accelerated(script_);
    for (int round = 0; round < 5; ++round) {
      const int calls = 1 + pick(kCalls);
      for (int call = 0; call < calls; ++call) {
        const at::NoGradGuard no_grad;
        ASSERT_TRUE(agree(module.forward({x_, z_}), script_.get_method("forward")({x_, z_}), kTolerance))
            << text_ << "after " << what_ << ", call " << call;
      }
      write(module);
    }
  }

 private:
  // Products of such matrices neither grow nor shrink.
  static at::Tensor scaled(c10::IntArrayRef sizes) {
    return at::randn(sizes) / std::sqrt(static_cast<double>(sizes.back()));
  }
  int pick(int count) { return static_cast<int>(random_() % static_cast<uint64_t>(count)); }
  at::Tensor any_weight() { return pick(4) == 0 ? biases_[0] : weights_[static_cast<size_t>(pick(3))]; }

  void write(const Module& module) {
    const at::Tensor w = any_weight();
    const at::NoGradGuard no_grad;
    switch (pick(14)) {
      case 0:
        what_ = "a write in place";
        w.mul_(-1);
        return;
      case 1:
        what_ = "a write to one element";
        w.view({-1})[pick(static_cast<int>(w.numel()))] = 0.5;
        return;
      case 2:
        what_ = "a write through data()";
        w.data().mul_(0.5);
        return;
      case 3:
        what_ = "a write through variable_data()";
        w.variable_data().mul_(-0.9);
        return;
      case 4:
        what_ = "set_data";
        w.set_data(scaled(w.sizes()));
        return;
      case 5:
        what_ = "detach()";
        w.detach().select(0, 0).fill_(0.1);
        return;
      case 6:
        what_ = "a pointer to all elements";
        for_each_element(w, [](float& each) { each *= -1; });
        return;
      case 7:
        what_ = "a pointer to one element of an argument";
        z_.data_ptr<float>()[pick(static_cast<int>(z_.numel()))] += 1;
        return;
      case 8:
        what_ = "another argument";
        z_ = scaled(z_.sizes());
        return;
      case 9:
        what_ = "copy_ from another thread";
        std::thread([&] {
          const at::NoGradGuard no_grad_there;
          w.copy_(scaled(w.sizes()));
        }).join();
        return;
      case 10: {
        what_ = "a pointer to one element, told";
        w.data_ptr<float>()[pick(static_cast<int>(w.numel()))] += 1;
        Module(module).weights_changed();
        return;
      }
      case 11:
        what_ = "a transposed view";
        w.t().mul_(-1);
        return;
      default:
        what_ = "an optimizer";
        train(module);
        return;
    }
  }

  template <typename Change>
  static void for_each_element(const at::Tensor& tensor, const Change& change) {
    float* const elements = tensor.data_ptr<float>();
    for (int64_t i = 0; i < tensor.numel(); ++i) {
      change(elements[i]);
    }
  }

  // A step on a loss of few elements, by sconce's gradients or LibTorch's.
  void train(const Module& module) {
    const at::AutoGradMode with_grad(true);
    std::vector<at::Tensor> trained;
    for (const at::Tensor& each : {weights_[0], weights_[2], biases_[0]}) {
      if (each.requires_grad()) {
        trained.push_back(each);
      }
    }
    if (trained.empty()) {
      return;
    }
    const at::Tensor out =
        pick(2) == 0 ? module.forward({x_, z_}).toTensor() : script_.get_method("forward")({x_, z_}).toTensor();
    if (!out.requires_grad()) {
      return;
    }
    out.select(1, pick(static_cast<int>(out.size(1)))).sum().backward();
    torch::optim::SGD sgd(trained, 0.1);
    torch::optim::Adam adam(trained, 0.1);
    torch::optim::Optimizer& optimizer = pick(2) == 0 ? static_cast<torch::optim::Optimizer&>(sgd) : adam;
    optimizer.step();
    if (pick(2) == 0) {
      optimizer.zero_grad();
    }
  }

  std::mt19937_64 random_;
  at::Tensor x_, z_;
  std::vector<at::Tensor> weights_, biases_;
  Attributes attributes_;
  std::string text_;
  std::string what_ = "nothing";
  torch::jit::Module script_;
};

TEST(PackedWrites, OfAllKindsAreSeen) {
  const uint64_t count = environment_number("SCONCE_WRITES", 300);
  for (uint64_t seed = 1; seed <= count && !HasFatalFailure(); ++seed) {
    SCOPED_TRACE("seed " + std::to_string(seed));
    WritingProgram(seed).run();
  }
}

}  // namespace
}  // namespace sconce::testing
