// A module by sconce, which records calls with their backward, beside the same by LibTorch.
#pragma once

#include "tests/training/two_trainings.h"

#include <sconce/module.h>

#include <ATen/ATen.h>
#include <gtest/gtest.h>
#include <torch/csrc/jit/runtime/graph_executor.h>

#include <functional>
#include <string>
#include <vector>

namespace sconce::testing {

// A module by sconce, and a copy by LibTorch.
class RecordedPair {
 public:
  explicit RecordedPair(const std::string& source, bool has_norm = false)
      : ours_(two_layers(source, has_norm)),
        theirs_(copy_of(ours_)),
        module_(accelerate(ours_, Options().compile(CompileMode::kBlocking))) {}

  c10::IValue ours(std::vector<c10::IValue> arguments) const { return module_.forward(std::move(arguments)); }
  c10::IValue theirs(std::vector<c10::IValue> arguments) {
    torch::jit::setGraphExecutorOptimize(false);
    struct Restore {
      ~Restore() { torch::jit::setGraphExecutorOptimize(true); }
    } const restore;
    return theirs_.forward(std::move(arguments));
  }
  torch::jit::Module& our_module() { return ours_; }
  torch::jit::Module& their_module() { return theirs_; }
  Explanation::Recorded recorded() const { return module_.method("forward").explain().recorded; }
  bool has_generic_plan_alone() const { return module_.method("forward").explain().plans.size() == 1; }

  void clear_gradients() {
    for (const torch::jit::Module* module : {&ours_, &theirs_}) {
      for (const at::Tensor& parameter : module->parameters()) {
        parameter.mutable_grad() = at::Tensor();
      }
    }
  }
  void expect_equal_gradients() const {
    const auto ours = state_of(ours_);
    const auto theirs = state_of(theirs_);
    for (size_t i = 0; i < ours.size(); ++i) {
      EXPECT_TRUE(at::allclose(ours[i], theirs[i], 1e-4, 1e-6)) << "tensor " << i;
      ASSERT_EQ(ours[i].grad().defined(), theirs[i].grad().defined()) << "gradient " << i;
      if (ours[i].grad().defined()) {
        // Elements near 0 are differences of large ones.
        const double scale = theirs[i].grad().numel() == 0 ? 0 : theirs[i].grad().abs().max().item<double>();
        EXPECT_TRUE(at::allclose(ours[i].grad(), theirs[i].grad(), 1e-4, 1e-5 + 1e-6 * scale))
            << "gradient " << i << " differs by " << (ours[i].grad() - theirs[i].grad()).abs().max() << " of "
            << theirs[i].grad().abs().max();
      }
    }
  }

 private:
  torch::jit::Module ours_;
  torch::jit::Module theirs_;
  Module module_;
};

// Runs a call and what `use` does with its result by both, several times.
using Use = std::function<void(const c10::IValue& result, const at::Tensor& x)>;
inline void expect_equal_uses(RecordedPair& pair, const Use& use, int calls = 8, bool clears = true, double atol = 1e-5) {
  for (int call = 0; call < calls; ++call) {
    if (clears) {
      pair.clear_gradients();
    }
    at::manual_seed(call);
    const at::Tensor x = at::randn({5, 8});
    const at::Tensor our_x = x.clone().set_requires_grad(true);
    const at::Tensor their_x = x.clone().set_requires_grad(true);
    at::manual_seed(call);
    use(pair.ours({our_x}), our_x);
    at::manual_seed(call);
    use(pair.theirs({their_x}), their_x);
    pair.expect_equal_gradients();
    ASSERT_EQ(our_x.grad().defined(), their_x.grad().defined());
    if (our_x.grad().defined()) {
      EXPECT_TRUE(at::allclose(our_x.grad(), their_x.grad(), 1e-4, atol)) << "call " << call;
    }
  }
}

}  // namespace sconce::testing
