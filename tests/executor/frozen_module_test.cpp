// Modules that are loaded with Options::frozen.
#include <sconce/module.h>

#include "tests/support/graphs.h"
#include "tests/support/work_counter.h"

#include <ATen/ATen.h>
#include <c10/core/InferenceMode.h>
#include <gmock/gmock.h>
#include <torch/csrc/jit/api/module.h>

#include <algorithm>
#include <string>
#include <utility>

namespace sconce {
namespace {

using testing::agree;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using testing::message_of;
using testing::module_of;
using ::testing::Not;

// A convolution with its norm, as torch.nn's modules compute them, and a counter.
const char* const kMethods = R"(
def forward(self, x):
    y = torch.conv2d(x, self.weight)
    assert y.dim() == 4, "expected 4D input"
    if self.training:
        self.seen.add_(1)
    return torch.batch_norm(y, self.gamma, None, self.mean, self.var, self.training, 0.1, 1e-5, True)

def count(self) -> int:
    self.calls += 1
    return self.calls

def buffer(self):
    return self.state

def sum(self, x):
    return x.sum() + self.state.sum()
)";

torch::jit::Module script(bool training = false) {
  at::manual_seed(5);
  return module_of(kMethods, {{"weight", at::randn({4, 3, 3, 3}).requires_grad_()},
                              {"gamma", at::randn({4}).requires_grad_()},
                              {"mean", at::randn({4})},
                              {"var", at::rand({4}) + 0.5},
                              {"seen", at::zeros({}, at::kLong)},
                              {"state", at::ones({2})},
                              {"calls", 0},
                              {"training", training}});
}

Options frozen() { return Options().frozen(true); }
at::Tensor image() { return at::randn({2, 3, 8, 8}); }

bool changed(const Explanation& explanation, const std::string& pass) {
  return std::any_of(explanation.passes.begin(), explanation.passes.end(),
                     [&](const PassTiming& each) { return each.pass == pass && each.changed; });
}

TEST(FrozenModule, GivesWhatTheModuleGivesFromCall1ToCall5) {
  const Module module = accelerate(script(), frozen());
  const Module plain = accelerate(script());
  const at::NoGradGuard no_grad;
  for (int call = 1; call <= 5; ++call) {
    const at::Tensor x = image();
    EXPECT_TRUE(agree(module.forward({x}), plain.forward({x}), 1e-5));
    EXPECT_EQ(module.run_method("count", {}).toInt(), call);
  }
  EXPECT_EQ(module.script_module().attr("calls").toInt(), 5);
  const Explanation explanation = module.method("forward").explain();
  EXPECT_TRUE(changed(explanation, "freeze"));
  EXPECT_TRUE(changed(explanation, "fold_batch_norm"));
  EXPECT_THAT(explanation.plans.front().text, Not(HasSubstr("batch_norm")));
  EXPECT_THAT(explanation.refusals, IsEmpty());
}

TEST(FrozenModule, WithoutOptimisationAttributesAreConstantsAndResultsTheSameToTheBit) {
  const Module module = accelerate(script(), frozen().optimize(false));
  const at::NoGradGuard no_grad;
  const at::Tensor x = image();
  EXPECT_TRUE(agree(module.forward({x}), accelerate(script()).forward({x})));
  EXPECT_THAT(module.method("forward").explain().plans.front().text, Not(HasSubstr("GetAttr")));
}

TEST(FrozenModule, SubmodulesThatAreReplacedLaterStayAsTheyWere) {
  torch::jit::Module parent("Parent");
  for (const auto& [name, number] : {std::pair("a", 2.0), std::pair("b", 3.0)}) {
    torch::jit::Module child(std::string("Child_") + name);
    child.register_buffer("w", at::full({2}, number));
    parent.register_module(name, child);
  }
  parent.define("def forward(self, x):\n    return x + self.a.w\ndef later(self, x):\n    return x * self.a.w - self.b.w\n");
  const Module module = accelerate(parent, frozen());
  const at::NoGradGuard no_grad;
  EXPECT_TRUE(agree(module.forward({at::ones({2})}), at::full({2}, 3.0)));
  for (const char* name : {"a", "b"}) {
    parent.setattr(name, parent.attr(name).toModule().deepcopy()._ivalue());
  }
  EXPECT_TRUE(agree(module.run_method("later", {at::ones({2})}), at::full({2}, -1.0)));
}

TEST(FrozenModule, ItsSpecsHoldNoAttributes) {
  const Module plain = accelerate(script());
  const Module module = accelerate(script(), frozen());
  plain.forward({image()});
  module.forward({image()});
  const auto tensors_in_spec = [](const Module& of) {
    const std::string spec = of.method("forward").explain().plans.front().specs.at(0);
    return std::count(spec.begin(), spec.end(), ';');
  };
  EXPECT_GT(tensors_in_spec(plain), tensors_in_spec(module));
}

TEST(FrozenModule, GradientsFlowToArgumentsAndNotToParameters) {
  const torch::jit::Module source = script();
  const Module module = accelerate(source, frozen());
  EXPECT_FALSE(module.forward({image()}).toTensor().requires_grad());
  const at::Tensor x = image().requires_grad_();
  const at::Tensor same = x.detach().clone().requires_grad_();
  module.forward({x}).toTensor().square().sum().backward();
  accelerate(script()).forward({same}).toTensor().square().sum().backward();
  EXPECT_TRUE(agree(x.grad(), same.grad(), 1e-3));
  EXPECT_FALSE(source.attr("weight").toTensor().grad().defined());
  EXPECT_TRUE(source.attr("weight").toTensor().requires_grad()) << "the module itself is left as it is";
}

TEST(FrozenModule, AMethodFirstAskedForInInferenceModeServesTraining) {
  const Module module = accelerate(script(), frozen());
  {
    const c10::InferenceMode inference;
    module.forward({image()});
  }
  const at::Tensor x = image().requires_grad_();
  module.forward({x}).toTensor().sum().backward();
  EXPECT_TRUE(x.grad().defined());
}

TEST(FrozenModule, WhatTheCallerWritesIntoResultsIsSeen) {
  const Module module = accelerate(script(), frozen());
  const at::Tensor x = at::zeros({2});
  EXPECT_EQ(module.run_method("sum", {x}).toTensor().item<float>(), 2);
  module.run_method("buffer", {}).toTensor().fill_(4);
  EXPECT_EQ(module.run_method("sum", {x}).toTensor().item<float>(), 8);
}

TEST(FrozenModule, PreservedAttributesSeeWritesFromOutside) {
  const torch::jit::Module source = script();
  const Module module = accelerate(source, frozen().preserve({"mean"}));
  const Module plain = accelerate(source);
  const at::NoGradGuard no_grad;
  const at::Tensor x = image();
  EXPECT_TRUE(agree(module.forward({x}), plain.forward({x}), 1e-5));
  source.attr("mean").toTensor().fill_(3);
  EXPECT_TRUE(agree(module.forward({x}), plain.forward({x}), 1e-5));
  EXPECT_THAT(module.method("forward").explain().plans.front().text, HasSubstr("batch_norm"));
}

TEST(FrozenModule, ExplainNamesWhatStaysAndWhy) {
  const Module module = accelerate(script(), frozen());
  const Explanation explanation = module.method("count").explain();
  ASSERT_EQ(explanation.refusals.size(), 1);
  EXPECT_EQ(explanation.refusals[0].what, "constant calls");
  EXPECT_EQ(explanation.refusals[0].reason, "a method assigns it");
  EXPECT_THAT(explanation.refusals[0].node, HasSubstr("prim::SetAttr"));
  EXPECT_EQ(explanation.counters.refusals, 1);
}

TEST(FrozenModule, TrainingModeIsRefusedWithTheRemedyWhichHelps) {
  Module module = accelerate(script(/*training=*/true), frozen());
  EXPECT_THAT(message_of([&] { module.forward({image()}); }), HasSubstr("call eval() first"));
  module.eval();
  const at::NoGradGuard no_grad;
  const at::Tensor x = image();
  EXPECT_TRUE(agree(module.forward({x}), accelerate(script()).forward({x}), 1e-5));
}

TEST(FrozenModule, ChangesThatItWouldNotSeeAreRefused) {
  Module module = accelerate(script(), frozen());
  module.to(c10::kCPU);
  module.forward({image()});
  module.eval();  // changes nothing
  EXPECT_THAT(message_of([&] { module.train(); }), HasSubstr("train(): the module is frozen"));
  EXPECT_THAT(message_of([&] { module.to(c10::kCPU); }), HasSubstr("to(): the module is frozen"));
  EXPECT_FALSE(module.script_module().is_training());
}

TEST(FrozenModule, UnknownNamesToPreserveAreRefused) {
  const Module module = accelerate(script(), frozen().preserve({"count", "wieght"}));
  EXPECT_THAT(message_of([&] { module.forward({image()}); }), HasSubstr("there is no 'wieght' to preserve"));
}

// ---- what a call executes -------------------------------------------------------------------------------------------

testing::Work work_of(const Module& module, const at::Tensor& argument) {
  module.forward({argument});
  return testing::count_work([&] { module.forward({argument}); });
}

TEST(FrozenModule, LooksUpInATableOfConstantsOnce) {
  const torch::jit::Module script = module_of("def forward(self, x):\n    return x + self.table[self.rows].sum(0)\n",
                                              {{"table", at::randn({5, 3})}, {"rows", at::arange(3)}, {"training", false}});
  const Module module = accelerate(script, frozen());
  const at::Tensor x = at::randn({2, 3});
  EXPECT_EQ(work_of(module, x).operators(), 1U);
  EXPECT_TRUE(agree(module.forward({x}), accelerate(script).forward({x})));
}

TEST(FrozenModule, ComputesOnceWhatTwoEqualConvolutionsWithNormsGive) {
  const torch::jit::Module script = module_of(
      R"(
def normed(self, x):
    y = torch.conv2d(x, self.weight)
    assert y.dim() == 4, "expected 4D input"
    return torch.batch_norm(y, None, None, self.mean, self.var, self.training, 0.1, 1e-5, True)

def forward(self, x):
    return self.normed(x) * self.normed(x)
)",
      {{"weight", at::randn({4, 3, 3, 3})}, {"mean", at::randn({4})}, {"var", at::rand({4}) + 0.5}, {"training", false}});
  const Module module = accelerate(script, frozen());
  const at::Tensor x = image();
  testing::Work work = work_of(module, x);
  EXPECT_EQ(work.by_operator["aten::conv2d"].executions, 1U);
  EXPECT_EQ(work.operators(), 2U);
  EXPECT_TRUE(agree(module.forward({x}), accelerate(script).forward({x}), 1e-4));
}

}  // namespace
}  // namespace sconce
