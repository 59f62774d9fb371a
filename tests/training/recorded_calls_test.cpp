// Calls that record gradients, recorded with their backward: results, gradients and errors are LibTorch's.
#include "tests/support/autocast_region.h"
#include "tests/training/recorded_pair.h"

#include <sconce/compiled_backward.h>

#include <ATen/ATen.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/csrc/autograd/autograd.h>
#include <torch/csrc/autograd/function.h>
#include <torch/csrc/jit/runtime/graph_executor.h>

#include <functional>
#include <limits>
#include <string>
#include <thread>
#include <vector>

namespace sconce::testing {
namespace {

using ::testing::HasSubstr;

// No subgraph has a sort along a dimension with values that are used as positions, so that each has an operator outside.
const char* const kSorted = R"(
def forward(self, x):
    h = torch.tanh(torch.linear(x, self.a_weight, self.a_bias))
    s = torch.cummax(h, 1)[0]
    return torch.linear(s * h, self.b_weight, self.b_bias) * self.scale
)";

TEST(RecordedCalls, HaveTheGradientsOfLibTorch) {
  RecordedPair pair(kSorted);
  expect_equal_uses(pair, [](const c10::IValue& y, const at::Tensor&) { y.toTensor().pow(2).sum().backward(); });
  EXPECT_GE(pair.recorded().by_plan, 4U);
  EXPECT_EQ(pair.recorded().plans.size(), 2U);
}

// The recorded casts are those of the region. What the region has cast before is no constant of the recording: the
// parameters change from call to call.
TEST(RecordedCalls, RunUnderAutocast) {
  RecordedPair pair(kSorted);
  for (int call = 0; call < 10; ++call) {
    pair.clear_gradients();
    const at::Tensor x = at::randn({call < 6 ? 5 : 5 + call % 3, 8});
    const at::Tensor our_x = x.clone().set_requires_grad(true);
    const at::Tensor their_x = x.clone().set_requires_grad(true);
    at::Tensor ours;
    at::Tensor theirs;
    {
      const AutocastRegion region(at::kCPU, at::kBFloat16);
      ours = pair.ours({our_x}).toTensor();
    }
    {
      const AutocastRegion region(at::kCPU, at::kBFloat16);
      theirs = pair.theirs({their_x}).toTensor();
    }
    ASSERT_EQ(ours.scalar_type(), theirs.scalar_type());
    EXPECT_TRUE(at::allclose(ours, theirs, 0.01, 0.01)) << "call " << call;
    (ours * ours).sum().backward();
    (theirs * theirs).sum().backward();
    EXPECT_TRUE(at::allclose(our_x.grad(), their_x.grad(), 0.02, 0.02)) << "call " << call;
    const at::NoGradGuard no_grad;
    for (torch::jit::Module* module : {&pair.our_module(), &pair.their_module()}) {
      for (at::Tensor parameter : module->parameters()) {
        parameter.sub_(parameter.grad(), 0.01);
      }
    }
  }
  EXPECT_GE(pair.recorded().by_plan, 4U);
  EXPECT_TRUE(pair.recorded().reasons.empty());
}

// A call without gradients runs below autograd, where a cast has no history. Autocast must not keep it for later calls.
TEST(RecordedCalls, HaveGradientsAfterACallWithoutInOneRegion) {
  for (const CompileMode mode : {CompileMode::kNever, CompileMode::kBlocking, CompileMode::kBackground}) {
    const torch::jit::Module script = two_layers(kSorted);
    const Module module = accelerate(script, Options().compile(mode));
    for (int call = 0; call < 6; ++call) {
      at::Tensor y;
      {
        const AutocastRegion region(at::kCPU, at::kBFloat16);
        {
          const at::NoGradGuard no_grad;
          static_cast<void>(module.forward({at::randn({5, 8})}));
        }
        y = module.forward({at::randn({5, 8})}).toTensor();
      }
      ASSERT_TRUE(y.requires_grad());
      y.sum().backward();
      for (const at::Tensor& parameter : script.parameters()) {
        EXPECT_TRUE(parameter.grad().defined()) << "call " << call;
        parameter.mutable_grad() = at::Tensor();
      }
    }
  }
}

// Eager backward then computes products in bfloat16; plans compute as forward did.
TEST(RecordedCalls, RunBackwardWithinARegion) {
  RecordedPair pair(R"(
def forward(self, x):
    h = torch.relu(torch.linear(x, self.a_weight, self.a_bias))
    return torch.mm(torch.softmax(torch.mm(h, h.t()), -1), h) * self.scale
)");
  for (int call = 0; call < 6; ++call) {
    const at::Tensor x = at::randn({5, 8});
    const at::Tensor our_x = x.clone().set_requires_grad(true);
    const at::Tensor their_x = x.clone().set_requires_grad(true);
    const at::Tensor ours = pair.ours({our_x}).toTensor();
    const at::Tensor theirs = pair.theirs({their_x}).toTensor();
    const AutocastRegion region(at::kCPU, at::kBFloat16);
    ours.pow(2).mean().backward();
    theirs.pow(2).mean().backward();
    EXPECT_TRUE(at::allclose(our_x.grad(), their_x.grad(), 0.05, 0.01)) << "call " << call;
  }
}

// LibTorch lets integers that are filled with a tensor require a gradient.
TEST(RecordedCalls, TakeIntegersThatRequireGradients) {
  RecordedPair pair("def forward(self, x, z):\n    z.fill_(x[0, 0])\n    return torch.linear(x, self.a_weight), z\n");
  const at::Tensor ours = at::zeros({3}, at::kLong);
  const at::Tensor theirs = at::zeros({3}, at::kLong);
  for (int call = 0; call < 6; ++call) {
    const at::Tensor x = (at::randn({5, 8}) * 20).requires_grad_();
    static_cast<void>(pair.ours({x, ours}));
    static_cast<void>(pair.theirs({x, theirs}));
    EXPECT_TRUE(at::equal(ours, theirs)) << "call " << call;
    EXPECT_EQ(ours.requires_grad(), theirs.requires_grad()) << "call " << call;
  }
}

TEST(RecordedCalls, TakeGradientsOfAnyStrides) {
  RecordedPair pair(kSorted);
  expect_equal_uses(pair, [](const c10::IValue& y, const at::Tensor&) { y.toTensor().sum().backward(); });
  expect_equal_uses(
      pair, [](const c10::IValue& y, const at::Tensor&) { y.toTensor().backward(at::arange(40.0).view({8, 5}).t()); });
  EXPECT_GE(pair.recorded().by_plan, 10U);
}

TEST(RecordedCalls, KeepTheGraph) {
  RecordedPair pair(kSorted);
  expect_equal_uses(pair, [](const c10::IValue& y, const at::Tensor&) {
    const at::Tensor loss = y.toTensor().pow(2).sum();
    loss.backward({}, /*retain_graph=*/true);
    loss.backward({}, /*retain_graph=*/true);
    loss.backward();
    EXPECT_THAT([&] { loss.backward(); },
                ::testing::ThrowsMessage<c10::Error>(HasSubstr("backward through the graph a second")));
  });
  EXPECT_GE(pair.recorded().by_plan, 4U);
}

TEST(RecordedCalls, AreDifferentiatedTwice) {
  for (const bool has_dropout : {false, true}) {
    RecordedPair pair(has_dropout ? R"(
def forward(self, x):
    h = torch.dropout(torch.tanh(torch.linear(x, self.a_weight, self.a_bias)), 0.3, True)
    return torch.linear(torch.cummax(h, 1)[0] * h, self.b_weight, self.b_bias) * self.scale
)"
                                  : kSorted);
    expect_equal_uses(pair, [](const c10::IValue& y, const at::Tensor& x) {
      const auto first = torch::autograd::grad({y.toTensor().pow(2).sum()}, {x}, {}, true, /*create_graph=*/true);
      first[0].pow(2).sum().backward();
    });
    EXPECT_GE(pair.recorded().by_plan, 4U);
  }
}

TEST(RecordedCalls, CallHooksOfParametersAndResults) {
  RecordedPair pair(kSorted);
  for (torch::jit::Module* module : {&pair.our_module(), &pair.their_module()}) {
    module->attr("a_weight").toTensor().register_hook([](const at::Tensor& gradient) { return gradient * 2; });
  }
  expect_equal_uses(pair, [](const c10::IValue& y, const at::Tensor& x) {
    x.register_hook([](const at::Tensor& gradient) { return gradient + 1; });
    y.toTensor().register_hook([](const at::Tensor& gradient) { return gradient * 3; });
    y.toTensor().pow(2).sum().backward();
  });
  // Hooks that come after the recording.
  RecordedPair other(kSorted);
  expect_equal_uses(other, [](const c10::IValue& y, const at::Tensor&) { y.toTensor().sum().backward(); });
  int calls = 0;
  for (torch::jit::Module* module : {&other.our_module(), &other.their_module()}) {
    module->attr("b_bias").toTensor().register_hook([&calls](const at::Tensor& gradient) {
      ++calls;
      return gradient * 0.5;
    });
  }
  expect_equal_uses(other, [](const c10::IValue& y, const at::Tensor&) { y.toTensor().sum().backward(); });
  EXPECT_EQ(calls, 16);
  EXPECT_GE(other.recorded().by_plan, 10U);
}

TEST(RecordedCalls, NoticeWritesBeforeBackward) {
  RecordedPair pair(kSorted);
  for (int call = 0; call < 6; ++call) {
    for (const bool by_sconce : {true, false}) {
      const at::Tensor x = at::randn({5, 8});
      const at::Tensor y = (by_sconce ? pair.ours({x}) : pair.theirs({x})).toTensor();
      torch::jit::Module& module = by_sconce ? pair.our_module() : pair.their_module();
      {
        const at::NoGradGuard no_grad;
        module.attr("b_weight").toTensor().mul_(1.0);
      }
      EXPECT_THAT([&] { y.sum().backward(); },
                  ::testing::ThrowsMessage<c10::Error>(HasSubstr("has been modified by an inplace operation")))
          << call << by_sconce;
    }
  }
  EXPECT_GE(pair.recorded().by_plan, 2U);
}

TEST(RecordedCalls, LetResultsBeWritten) {
  RecordedPair pair(kSorted);
  expect_equal_uses(pair, [](const c10::IValue& y, const at::Tensor&) {
    at::Tensor result = y.toTensor();
    result.mul_(2).add_(1);
    result[0].zero_();
    result.pow(2).sum().backward();
  });
  EXPECT_GE(pair.recorded().by_plan, 4U);
}

TEST(RecordedCalls, HaveSeveralResults) {
  RecordedPair pair(R"(
def forward(self, x) -> Tuple[Tensor, List[Tensor], Dict[str, Tensor], int, Optional[Tensor], Tensor]:
    h = torch.cummax(torch.linear(x, self.a_weight), 1)[0]
    g = torch.tanh(torch.linear(x, self.b_weight, self.b_bias))
    n: Optional[Tensor] = None
    return h * 2, [g.t(), h + g], {'sum': h.sum(0)}, x.size(0), n, torch.argmax(h, 1)
)");
  for (const int used : {0, 1, 2, 3, 4}) {
    expect_equal_uses(pair, [used](const c10::IValue& y, const at::Tensor&) {
      const auto& all = y.toTupleRef().elements();
      EXPECT_EQ(all[3].toInt(), 5);
      EXPECT_TRUE(all[4].isNone());
      EXPECT_FALSE(all[5].toTensor().requires_grad());
      at::Tensor loss = at::zeros({});
      if (used == 0 || used == 4) {
        loss = loss + all[0].toTensor().pow(2).sum();
      }
      if (used == 1 || used == 4) {
        loss = loss + all[1].toTensorVector()[0].pow(2).sum();
      }
      if (used == 2 || used == 4) {
        loss = loss + all[1].toTensorVector()[1].pow(2).sum();
      }
      if (used == 3 || used == 4) {
        loss = loss + all[2].toGenericDict().at("sum").toTensor().pow(2).sum();
      }
      loss.backward();
    });
  }
  EXPECT_GE(pair.recorded().by_plan, 30U);
}

// Backward of each of these writes a tensor that it has made, and reads it again.
TEST(RecordedCalls, WriteGradientsInPlace) {
  for (const char* body :
       {"    return torch.cummax(torch.sort(y, 1)[0], 1)[0]\n", "    return torch.cummax(torch.cummax(y, 0)[0], 1)[0]\n",
        "    y.relu_()\n    return torch.sort(torch.sort(y, 0)[0], 1)[0]\n",
        "    y.relu_()\n    return torch.cummin(torch.gather(y, 1, x.argsort(1)), 0)[0]\n",
        "    k, i = torch.topk(y, 2, 1)\n    o = torch.zeros_like(y)\n    o.scatter_(1, i, torch.softmax(k, 1))\n"
        "    y = o * torch.mm(y, self.b_weight)\n    y.relu_()\n    return torch.topk(y, 3, 1)[0]\n"}) {
    RecordedPair pair("def forward(self, x):\n    y = torch.mm(x, self.a_weight)\n" + std::string(body));
    expect_equal_uses(pair, [](const c10::IValue& y, const at::Tensor&) { y.toTensor().pow(2).sum().backward(); });
    EXPECT_GE(pair.recorded().by_plan, 4U) << body;
  }
}

TEST(RecordedCalls, AreDifferentiatedTwiceWhereTheyDependOnEachOther) {
  RecordedPair pair(kSorted);
  for (int call = 0; call < 8; ++call) {
    const at::Tensor x = at::randn({5, 8});
    std::vector<at::Tensor> gradients;
    for (const bool by_sconce : {true, false}) {
      const auto run = [&](const at::Tensor& in) { return (by_sconce ? pair.ours({in}) : pair.theirs({in})).toTensor(); };
      const torch::jit::Module& module = by_sconce ? pair.our_module() : pair.their_module();
      const at::Tensor weight = module.attr("a_weight").toTensor();
      const at::Tensor twice = run(run(x.mm(weight)));
      const at::Tensor first = torch::autograd::grad({twice.pow(2).sum()}, {weight}, {}, true, /*create_graph=*/true)[0];
      gradients.push_back(first.detach());
      gradients.push_back(torch::autograd::grad({first.pow(2).sum()}, {weight})[0]);
    }
    EXPECT_TRUE(at::allclose(gradients[0], gradients[2], 1e-3, 1e-4)) << "call " << call;
    EXPECT_TRUE(at::allclose(gradients[1], gradients[3], 1e-2, 1e-2 * gradients[3].abs().max().item<double>())) << call;
  }
  EXPECT_GE(pair.recorded().by_plan, 8U);
}

TEST(RecordedCalls, FreeWhatABackwardHasRunThrough) {
  RecordedPair apart(R"(
def forward(self, x):
    a = torch.mm(x, self.a_weight)
    a.relu_()
    b = torch.cummax(torch.mm(x, self.b_weight), 1)[0]
    b.relu_()
    return a, b
)");
  expect_equal_uses(apart, [](const c10::IValue& y, const at::Tensor&) {
    const auto& both = y.toTupleRef().elements();
    both[0].toTensor().pow(2).sum().backward();
    both[1].toTensor().pow(2).sum().backward();
    EXPECT_THROW(both[0].toTensor().sum().backward(), c10::Error);
  });
  EXPECT_GE(apart.recorded().by_plan, 4U);
  RecordedPair together(R"(
def forward(self, x):
    h = torch.tanh(torch.cummax(torch.mm(x, self.a_weight), 1)[0])
    return torch.mm(h, self.b_weight), h * 2
)");
  expect_equal_uses(together, [](const c10::IValue& y, const at::Tensor&) {
    const auto& both = y.toTupleRef().elements();
    both[0].toTensor().sum().backward();
    EXPECT_THROW(both[1].toTensor().pow(2).sum().backward(), c10::Error);
  });
  EXPECT_GE(together.recorded().by_plan, 4U);
}

TEST(RecordedCalls, LeaveVersionsAsTheyAre) {
  RecordedPair pair(R"(
def forward(self, x):
    y = torch.mm(x, self.a_weight)
    y.relu_()
    self.mean.add_(1)
    return torch.cummax(torch.mm(y, self.b_weight), 1)[0] * self.mean
)",
                    /*has_norm=*/true);
  expect_equal_uses(pair, [](const c10::IValue& y, const at::Tensor&) { y.toTensor().pow(2).sum().backward(); });
  EXPECT_GE(pair.recorded().by_plan, 4U);
}

TEST(RecordedCalls, UpdateBuffersOnce) {
  RecordedPair pair(R"(
def forward(self, x):
    h = torch.batch_norm(torch.linear(x, self.a_weight), self.b_bias + 1, self.a_bias, self.mean, self.var, True, 0.1, 1e-5, True)
    return torch.linear(torch.dropout(torch.cummax(h, 1)[0], 0.2, True), self.b_weight)
)",
                    /*has_norm=*/true);
  expect_equal_uses(pair, [](const c10::IValue& y, const at::Tensor&) { y.toTensor().pow(2).sum().backward(); });
  EXPECT_GE(pair.recorded().by_plan, 4U);
}

TEST(RecordedCalls, FollowAttributesAndParameters) {
  RecordedPair pair(kSorted);
  const Use use = [](const c10::IValue& y, const at::Tensor&) { y.toTensor().pow(2).sum().backward(); };
  expect_equal_uses(pair, use);
  for (torch::jit::Module* module : {&pair.our_module(), &pair.their_module()}) {
    module->setattr("scale", 0.5);
  }
  expect_equal_uses(pair, use);
  for (torch::jit::Module* module : {&pair.our_module(), &pair.their_module()}) {
    module->attr("a_weight").toTensor().set_requires_grad(false);
  }
  expect_equal_uses(pair, use);
  for (torch::jit::Module* module : {&pair.our_module(), &pair.their_module()}) {
    at::manual_seed(9);
    module->setattr("b_weight", at::randn({8, 8}).set_requires_grad(true));
  }
  expect_equal_uses(pair, use);
  EXPECT_GE(pair.recorded().by_plan, 12U);
}

// `weight.data` makes an alias without an operator: the recording captures the alias that the recorded call has made.
TEST(RecordedCalls, FollowParametersToOtherMemory) {
  RecordedPair pair(R"(
def forward(self, x):
    self.a_bias.data.mul_(0.75)
    return torch.cummax(torch.mm(x, self.b_weight), 1)[0]
)");
  const Use use = [](const c10::IValue& y, const at::Tensor&) { y.toTensor().pow(2).sum().backward(); };
  expect_equal_uses(pair, use);
  EXPECT_GE(pair.recorded().by_plan, 4U);
  const auto bias = [](const torch::jit::Module& module) { return module.attr("a_bias").toTensor(); };
  for (const torch::jit::Module* module : {&pair.our_module(), &pair.their_module()}) {
    at::manual_seed(9);
    bias(*module).set_data(at::randn_like(bias(*module)));
  }
  expect_equal_uses(pair, use);
  EXPECT_TRUE(at::allclose(bias(pair.our_module()), bias(pair.their_module())));
}

TEST(RecordedCalls, LeaveSizesOpen) {
  RecordedPair pair(kSorted);
  for (const int64_t batch : {3, 5, 7, 3, 1, 9, 12, 2, 1, 6, 0, 11, 1}) {
    pair.clear_gradients();
    const at::Tensor x = at::randn({batch, 8});
    pair.ours({x}).toTensor().pow(2).sum().backward();
    pair.theirs({x}).toTensor().pow(2).sum().backward();
    pair.expect_equal_gradients();
  }
  EXPECT_GE(pair.recorded().by_plan, 4U);
  EXPECT_THAT(pair.recorded().why_sizes_are_fixed, ::testing::IsEmpty());
  EXPECT_THAT(pair.recorded().reasons, ::testing::IsEmpty());
  EXPECT_LE(pair.recorded().recorded, 4U);
}

TEST(RecordedCalls, AreRefusedWithAReason) {
  for (const auto& [body, reason] : std::vector<std::pair<std::string, std::string>>{
           {"    h = torch.cummax(x * self.scale, 1)[0]\n    return h[h > 0] * 1.0\n", "depend on the elements"},
           {"    self.scale = self.scale + 0.1\n    return torch.cummax(x * self.a_bias, 1)[0] * self.scale\n", "attribute"},
           {"    return torch.cummax(x * self.a_bias, 1)[0].t(), self.a_weight\n", "no operator has computed"},
           {"    h = torch.cummax(x * self.a_bias, 1)[0]\n    return h, h.view(-1)\n", "shares memory"},
           {"    y = x.detach()\n    y.add_(1)\n    return torch.cummax(y * self.a_bias, 1)[0]\n", "writes an argument"},
       }) {
    RecordedPair pair("def forward(self, x):\n" + body);
    expect_equal_uses(
        pair,
        [](const c10::IValue& y, const at::Tensor&) {
          (y.isTensor() ? y.toTensor() : y.toTupleRef().elements()[0].toTensor()).sum().backward();
        },
        4);
    ASSERT_FALSE(pair.recorded().reasons.empty()) << body;
    EXPECT_THAT(pair.recorded().reasons.front().first, HasSubstr(reason)) << body;
    EXPECT_EQ(pair.recorded().by_plan, 0U) << body;
  }
}

// The elements of such a view share memory: a write to one of them changes others.
TEST(RecordedCalls, ReturnViewsAsTheyAre) {
  for (const char* view : {"h[:, 0:1].expand(5, 8)", "h[:, ::2]", "h.unfold(1, 3, 2)", "h[0]", "h.t()", "h.view(2, 20)"}) {
    RecordedPair pair(std::string(R"(
def forward(self, x):
    h = torch.linear(torch.cummax(torch.tanh(torch.linear(x, self.a_weight, self.a_bias)), 1)[0], self.b_weight, self.b_bias)
    return )") + view +
                      "\n");
    std::vector<at::Tensor> results;
    expect_equal_uses(pair, [&](const c10::IValue& y, const at::Tensor&) { results.push_back(y.toTensor().detach()); });
    for (size_t i = 0; i < results.size(); i += 2) {
      EXPECT_EQ(results[i].strides(), results[i + 1].strides()) << view << ", call " << i / 2;
    }
  }
}

// Numbers that a call reads decide what it does. The plan serves calls that read the recorded numbers.
TEST(RecordedCalls, CheckTheNumbersThatTheyRead) {
  for (const char* reading : {"bool((x[0, 0] > -10).item())", "bool(x[0, 0] > -10)", "float(x[0, 0]) > -10.0",
                              "torch.equal(x[0, 0:1] > -10, torch.ones(1) > 0)"}) {
    RecordedPair pair(std::string(R"(
def forward(self, x):
    h = torch.dropout(torch.cummax(torch.tanh(torch.linear(x, self.a_weight, self.a_bias)), 1)[0], 0.3, True)
    self.mean.mul_(0.9).add_(h.detach().mean(0), alpha=0.1)
    y = torch.linear(h, self.b_weight, self.b_bias)
    if )") + reading +
                          R"(:
        y = y * self.scale
    else:
        y = torch.cummax(y, 1)[0] + h[5:].sum()
    return y
)",
                      /*has_norm=*/true);
    for (int call = 0; call < 20; ++call) {
      pair.clear_gradients();
      at::manual_seed(call);
      at::Tensor x = at::randn({5, 8});
      x[0][0] = call % 7 == 6 ? -20 : 1;  // float(…) reads the number itself
      at::manual_seed(call);
      const at::Tensor ours = pair.ours({x}).toTensor();
      const at::Tensor our_next = at::rand({3});
      ours.pow(2).sum().backward();
      at::manual_seed(call);
      const at::Tensor theirs = pair.theirs({x}).toTensor();
      EXPECT_TRUE(at::equal(our_next, at::rand({3}))) << reading << ", call " << call;
      theirs.pow(2).sum().backward();
      EXPECT_TRUE(at::allclose(ours, theirs, 1e-4, 1e-5)) << reading << ", call " << call;
      pair.expect_equal_gradients();
    }
    EXPECT_GE(pair.recorded().by_plan, 8U) << reading;
    ASSERT_FALSE(pair.recorded().reasons.empty()) << reading;
    EXPECT_THAT(pair.recorded().reasons.front().first, HasSubstr("other numbers")) << reading;
  }
}

TEST(RecordedCalls, LeaveToTheMethodWhatReadsOthersEachTime) {
  RecordedPair pair(R"(
def forward(self, x):
    y = torch.cummax(torch.linear(x, self.a_weight, self.a_bias), 1)[0]
    return torch.linear(y, self.b_weight, self.b_bias) * self.scale * float(x.sum())
)");
  expect_equal_uses(
      pair, [](const c10::IValue& y, const at::Tensor&) { y.toTensor().pow(2).sum().backward(); }, /*calls=*/20);
  EXPECT_EQ(pair.recorded().by_plan, 0U);
  ASSERT_FALSE(pair.recorded().reasons.empty());
  EXPECT_LE(pair.recorded().reasons.front().second, 8U) << "then they are not tried any more";
}

TEST(RecordedCalls, ReturnArgumentsThemselves) {
  RecordedPair pair(R"(
def forward(self, x):
    h = torch.cummax(torch.linear(x, self.a_weight, self.a_bias), 1)[0]
    return x, torch.linear(h, self.b_weight, self.b_bias) * self.scale, (x, h * 2)
)");
  expect_equal_uses(pair, [](const c10::IValue& y, const at::Tensor& x) {
    const auto& elements = y.toTupleRef().elements();
    EXPECT_TRUE(elements[0].toTensor().is_same(x));
    EXPECT_TRUE(elements[2].toTupleRef().elements()[0].toTensor().is_same(x));
    (elements[1].toTensor().pow(2).sum() + elements[2].toTupleRef().elements()[1].toTensor().sum() +
     elements[0].toTensor().sum())
        .backward();
  });
  EXPECT_GE(pair.recorded().by_plan, 4U);
}

// The program may write a tensor that only the backward of the other result reads.
TEST(RecordedCalls, CheckWhatABackwardReads) {
  RecordedPair pair(R"(
def forward(self, x):
    h = torch.cummax(torch.linear(x, self.a_weight, self.a_bias), 1)[0].sin()
    return torch.linear(h, self.b_weight), h * self.scale
)");
  expect_equal_uses(pair, [&pair](const c10::IValue& y, const at::Tensor&) {
    const auto& elements = y.toTupleRef().elements();
    elements[0].toTensor().sum().backward({}, /*retain_graph=*/true);
    {
      const at::NoGradGuard no_grad;
      pair.our_module().attr("b_weight").toTensor().mul_(1);
      pair.their_module().attr("b_weight").toTensor().mul_(1);
    }
    elements[1].toTensor().sum().backward();
  });
  EXPECT_GE(pair.recorded().by_plan, 4U);
}

TEST(RecordedCalls, WriteBuffersThatAreViewsOfParameters) {
  torch::jit::Module module("M");
  module.register_parameter("w", at::randn({8, 8}), /*is_buffer=*/false);
  module.register_buffer("row", module.attr("w").toTensor().detach()[1]);
  module.define("def forward(self, x):\n    self.row.add_(0.01)\n    return torch.cummax(torch.mm(x, self.w), 1)[0]\n");
  const Module ours = accelerate(module, Options().compile(CompileMode::kBlocking));
  for (int call = 0; call < 8; ++call) {
    const at::Tensor x = at::randn({5, 8}).set_requires_grad(true);
    EXPECT_NO_THROW(ours.forward({x}).toTensor().sum().backward()) << "call " << call;
    const at::Tensor indices = std::get<1>(at::cummax(at::mm(x, module.attr("w").toTensor()), 1));
    EXPECT_TRUE(x.grad().defined() && indices.defined());
  }
  EXPECT_GE(ours.method("forward").explain().recorded.by_plan, 3U);
}

TEST(RecordedCalls, RaiseTheErrorsOfLibTorch) {
  RecordedPair pair(kSorted);
  const Use use = [](const c10::IValue& y, const at::Tensor&) { y.toTensor().sum().backward(); };
  for (int round = 0; round < 3; ++round) {
    expect_equal_uses(pair, use, 4);
    EXPECT_THAT([&] { pair.ours({at::randn({5, 7})}); },
                ::testing::ThrowsMessage<std::exception>(HasSubstr("mat1 and mat2 shapes cannot be multiplied")));
    EXPECT_THAT([&] { pair.ours({at::randn({5, 8}, at::kDouble)}); },
                ::testing::ThrowsMessage<std::exception>(HasSubstr("same dtype")));
  }
}

TEST(RecordedCalls, RunInSeveralThreads) {
  RecordedPair pair(kSorted);
  const at::Tensor x = at::randn({5, 8});
  const at::Tensor expected = torch::autograd::grad({pair.theirs({x}).toTensor().pow(2).sum()},
                                                    {pair.their_module().attr("a_weight").toTensor()})[0];
  std::vector<std::thread> threads;
  for (int i = 0; i < 4; ++i) {
    threads.emplace_back([&] {
      for (int call = 0; call < 30; ++call) {
        const at::Tensor found = torch::autograd::grad({pair.ours({x}).toTensor().pow(2).sum()},
                                                       {pair.our_module().attr("a_weight").toTensor()})[0];
        EXPECT_TRUE(at::allclose(found, expected, 1e-4, 1e-5));
      }
    });
  }
  for (std::thread& thread : threads) {
    thread.join();
  }
  pair.ours({x}).toTensor().sum().backward();  // the threads may have ended before there was a plan
  pair.ours({x}).toTensor().sum().backward();
  EXPECT_GE(pair.recorded().by_plan, 1U);
}

// LibTorch's formula of `max` asks whether the maximum is NaN.
TEST(RecordedCalls, CheckTheNumbersThatBackwardReads) {
  RecordedPair pair(R"(
def forward(self, x):
    h = torch.cummax(torch.linear(x, self.a_weight, self.a_bias), 1)[0]
    return torch.exp(h - h.max()).sum(1)
)");
  const auto use = [](const c10::IValue& y, const at::Tensor&) { y.toTensor().sum().backward(); };
  expect_equal_uses(pair, use);
  const uint64_t by_plan = pair.recorded().by_plan;
  EXPECT_GE(by_plan, 4U);
  for (int call = 0; call < 3; ++call) {
    std::vector<at::Tensor> gradients;
    for (const bool is_ours : {true, false}) {
      at::Tensor x = at::ones({5, 8});
      x[2][3] = std::numeric_limits<double>::quiet_NaN();
      x.requires_grad_();
      (is_ours ? pair.ours({x}) : pair.theirs({x})).toTensor().sum().backward();
      gradients.push_back(x.grad());
    }
    EXPECT_TRUE(at::allclose(gradients[0], gradients[1], 1e-4, 1e-5, /*equal_nan=*/true)) << gradients[0] << gradients[1];
  }
  EXPECT_EQ(pair.recorded().by_plan, by_plan + 3);
  expect_equal_uses(pair, use);
}

// Rules reach every operator. The recording has its turns beside the plan with differentiable subgraphs.
TEST(RecordedCalls, HaveTurnsWhereRulesReachEveryOperator) {
  torch::jit::Module ours = two_layers(kMlp);
  torch::jit::Module theirs = copy_of(ours);
  const Module module = accelerate(ours);
  const at::Tensor x = at::randn({5, 8});
  for (int call = 0; call < 40; ++call) {
    for (const torch::jit::Module* each : {&ours, &theirs}) {
      for (const at::Tensor& parameter : each->parameters()) {
        parameter.mutable_grad() = at::Tensor();
      }
    }
    module.forward({x}).toTensor().pow(2).sum().backward();
    theirs.forward({x}).toTensor().pow(2).sum().backward();
    for (size_t i = 0; i < parameters_of(ours).size(); ++i) {
      EXPECT_TRUE(at::allclose(parameters_of(ours)[i].grad(), parameters_of(theirs)[i].grad(), 1e-4, 1e-5)) << call;
    }
    module.method("forward").wait_for_compiles();
  }
  EXPECT_EQ(module.method("forward").explain().recorded.recorded, 1U);
  EXPECT_GE(module.method("forward").explain().recorded.by_plan, 12U);
}

// Such a method has no specialized plan: knowing the arguments changes no node.
TEST(RecordedCalls, ServeMethodsWithoutASpecializedPlan) {
  RecordedPair pair(R"(
def forward(self, x):
    return torch.cummax(torch.fft_irfft(torch.fft_rfft(x), 8), 1)[0]
)");
  expect_equal_uses(pair, [](const c10::IValue& y, const at::Tensor&) { y.toTensor().pow(2).sum().backward(); });
  EXPECT_TRUE(pair.has_generic_plan_alone());
  EXPECT_GE(pair.recorded().by_plan, 4U);
}

// oneDNN's layer keeps a workspace for backward.
TEST(RecordedCalls, RunRecurrentLayersOfLibTorch) {
  for (const std::string rest : {"y[0].repeat([1, 1, 4]) * y[2].sum(), y[1]", "y[0].sin(), y[2]"}) {
    RecordedPair pair(R"(
def forward(self, x):
    h = torch.zeros([2, x.size(0), 2])
    weights = [self.a_weight, self.b_weight[:, 0:2].contiguous(), self.a_bias, self.b_bias,
               self.b_weight.t() * 2, self.b_weight[:, 3:5].contiguous(), self.a_bias.sin(), self.b_bias * 2]
    y = torch.lstm(torch.stack([x, x * 2, x.cos()], 1), [h, h], weights, True, 1, 0.0, True, True, True)
    return )" + rest + "\n");
    expect_equal_uses(pair, [](const c10::IValue& y, const at::Tensor&) {
      const auto& elements = y.toTupleRef().elements();
      const at::Tensor loss = elements[0].toTensor().pow(2).sum() + elements[1].toTensor().sum();
      loss.backward({}, /*retain_graph=*/true);
      loss.backward();
    });
    // Gradients of up to 5.5, which cancel: their sums round by up to 1.8e-5 on some CPUs.
    const auto twice = [](const c10::IValue& y, const at::Tensor& x) {
      const at::Tensor loss = y.toTupleRef().elements()[0].toTensor().pow(2).sum();
      torch::autograd::grad({loss}, {x}, {}, true, /*create_graph=*/true)[0].pow(2).sum().backward();
    };
    expect_equal_uses(pair, twice, /*calls=*/8, /*clears=*/true, /*atol=*/2.5e-5);
    EXPECT_GE(pair.recorded().by_plan, 10U) << ::testing::PrintToString(pair.recorded().reasons);
  }
}

TEST(RecordedCalls, RunInCompiledBackwardsAndTrainSteps) {
  RecordedPair pair(kSorted);
  expect_equal_uses(pair, [](const c10::IValue& y, const at::Tensor&) {
    static const BackwardCache backwards(Options().compile(CompileMode::kBlocking));
    const CompiledBackward scope(backwards);
    y.toTensor().pow(2).sum().backward();
  });
  EXPECT_GE(pair.recorded().by_plan, 4U);
  TwoTrainings both(two_layers(kSorted), adam);
  for (uint64_t step = 0; step < 12; ++step) {
    both.train(static_cast<int64_t>(4 + step % 3), step);
  }
  EXPECT_GE(both.step().explain().by_plan, 8U);
}

}  // namespace
}  // namespace sconce::testing
