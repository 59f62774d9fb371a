// Effects of calls: marks on arguments and attributes, gradients and histories that the script makes, operators and classes
// of libraries, warnings. Each call has LibTorch's effects, recorded or not.
#include "base/tensors_in.h"
#include "tests/training/recorded_pair.h"

#include <sconce/compiled_backward.h>
#include <sconce/trace.h>
#include <sconce/train_step.h>

#include <ATen/ATen.h>
#include <ATen/record_function.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/csrc/autograd/autograd.h>
#include <torch/custom_class.h>
#include <torch/library.h>
#include <torch/optim/sgd.h>

#include <array>
#include <functional>
#include <string>
#include <vector>

namespace sconce::testing {
namespace {

using ::testing::Contains;
using ::testing::HasSubstr;
using ::testing::Pair;

int64_t ticks = 0;
double scale_of_library = 1;
struct Counter : torch::CustomClassHolder {
  int64_t count = 0;
  int64_t next() { return ++count; }
};

// `tick` and `scaled` are composed of LibTorch's operators; `counted` has a kernel for the CPU.
TORCH_LIBRARY(call_effects, library) {
  library.def("tick", [](const at::Tensor&) { ++ticks; });
  library.def("scaled", [](const at::Tensor& x) { return x * scale_of_library; });
  library.def("doubled(Tensor x) -> Tensor", [](const at::Tensor& x) { return x * 2; }, {at::Tag::pt2_compliant_tag});
  library.def("counted(Tensor x) -> Tensor");
  library.class_<Counter>("Counter").def(torch::init<>()).def("next", &Counter::next);
}
TORCH_LIBRARY_IMPL(call_effects, CPU, library) {
  library.impl("counted", [](const at::Tensor& x) {
    ++ticks;
    return x * 1;
  });
}

// Compares everything that autograd and the program see of a tensor.
void expect_equal_state(const at::Tensor& ours, const at::Tensor& theirs, const std::string& where) {
  EXPECT_EQ(ours.requires_grad(), theirs.requires_grad()) << where;
  EXPECT_EQ(ours.is_leaf(), theirs.is_leaf()) << where;
  EXPECT_EQ(ours.retains_grad(), theirs.retains_grad()) << where;
  EXPECT_EQ(ours.sizes(), theirs.sizes()) << where;
  EXPECT_EQ(ours.strides(), theirs.strides()) << where;
  EXPECT_TRUE(at::allclose(ours, theirs, 1e-4, 1e-6)) << where;
  if (ours.is_leaf() || ours.retains_grad()) {
    ASSERT_EQ(ours.grad().defined(), theirs.grad().defined()) << where;
    if (ours.grad().defined()) {
      EXPECT_TRUE(at::allclose(ours.grad(), theirs.grad(), 1e-4, 1e-5)) << where << ": gradient";
    }
  }
}

constexpr int kCalls = 10;

using After = std::function<void(const c10::IValue& result, const std::vector<at::Tensor>& arguments)>;
void run_backward(const c10::IValue& result, const std::vector<at::Tensor>& /*arguments*/) {
  std::vector<at::Tensor> losses;
  for (const at::Tensor& tensor : tensors_in(result)) {
    if (tensor.requires_grad()) {
      losses.push_back(tensor.pow(2).sum());
    }
  }
  for (size_t i = 0; i < losses.size(); ++i) {
    losses[i].backward({}, /*retain_graph=*/i + 1 < losses.size());
  }
}

// Calls both with new arguments of the sizes, in a container if `wrap` puts them there.
void expect_equal_effects(
    RecordedPair& pair, const After& after = run_backward,
    const std::function<c10::IValue(const at::Tensor&)>& wrap = [](const at::Tensor& x) { return x; },
    bool requires_grad = false) {
  for (int call = 0; call < kCalls; ++call) {
    const std::string where = "call " + std::to_string(call);
    at::manual_seed(call);
    const at::Tensor x = at::randn({5, 8});
    const std::vector<at::Tensor> ours = {x.clone().set_requires_grad(requires_grad)};
    const std::vector<at::Tensor> theirs = {x.clone().set_requires_grad(requires_grad)};
    at::manual_seed(call);
    const c10::IValue our_result = pair.ours({wrap(ours[0])});
    after(our_result, ours);
    at::manual_seed(call);
    const c10::IValue their_result = pair.theirs({wrap(theirs[0])});
    after(their_result, theirs);
    expect_equal_state(ours[0], theirs[0], where + ": the argument");
    const auto our_results = tensors_in(our_result);
    const auto their_results = tensors_in(their_result);
    ASSERT_EQ(our_results.size(), their_results.size());
    for (size_t i = 0; i < our_results.size(); ++i) {
      expect_equal_state(our_results[i], their_results[i], where + ": result " + std::to_string(i));
      EXPECT_EQ(our_results[i].is_same(ours[0]), their_results[i].is_same(theirs[0])) << where;
    }
    pair.expect_equal_gradients();
  }
}

const std::string kLayer = "    h = torch.tanh(torch.cummax(torch.linear(x, self.a_weight), 1)[0])\n";
std::string script(const std::string& body, const std::string& type = "Tensor") {
  return "def forward(self, x: " + type + "):\n" + body;
}

// ---- marks ----------------------------------------------------------------------------------------------------------

TEST(CallEffects, MarkArguments) {
  for (const char* result : {"h.sum()", "h, x", "(x * 2).sum() + h.sum()"}) {
    RecordedPair pair(script("    x.requires_grad_(True)\n" + kLayer + "    return " + result + "\n"));
    expect_equal_effects(pair);
    EXPECT_GE(pair.recorded().by_plan, 4U) << result;
  }
}

TEST(CallEffects, MarkElementsOfContainers) {
  RecordedPair list(script("    y = x[0]\n    y.requires_grad_()\n    return torch.linear(y, self.a_weight).cummax(1)[0]\n",
                           "List[Tensor]"));
  expect_equal_effects(list, run_backward, [](const at::Tensor& x) { return c10::List<at::Tensor>({x}); });
  RecordedPair dict(
      script("    y = x['a']\n    y.requires_grad_()\n    return torch.linear(y, self.a_weight).cummax(1)[0]\n",
             "Dict[str, Tensor]"));
  expect_equal_effects(dict, run_backward, [](const at::Tensor& x) {
    c10::Dict<std::string, at::Tensor> values;
    values.insert("a", x);
    return values;
  });
}

TEST(CallEffects, TakeMarksAway) {
  for (const char* mark : {"x.requires_grad_(False)", "x.detach_()"}) {
    RecordedPair pair(script("    y = x * 2\n    " + std::string(mark) + "\n" + kLayer + "    return h, y\n"));
    expect_equal_effects(pair, run_backward, [](const at::Tensor& x) { return x; }, /*requires_grad=*/true);
  }
}

TEST(CallEffects, RetainGradients) {
  RecordedPair pair(script("    x.requires_grad_()\n" + kLayer + "    h.retain_grad()\n    return h, h * 2\n"));
  expect_equal_effects(pair);
}

TEST(CallEffects, MakeResultsLeaves) {
  RecordedPair pair(script(kLayer + "    k = h.detach()\n    k.requires_grad_(True)\n    return h, k * 2, k\n"));
  expect_equal_effects(pair);
}

TEST(CallEffects, MarkAttributes) {
  for (const char* result : {"h * (self.mean + 1)", "h"}) {
    RecordedPair pair(script("    self.mean.requires_grad_(True)\n" + kLayer + "    return " + result + "\n"), true);
    for (int round = 0; round < 3; ++round) {
      expect_equal_effects(pair);
      for (torch::jit::Module* module : {&pair.our_module(), &pair.their_module()}) {
        const at::Tensor mean = module->attr("mean").toTensor();
        EXPECT_TRUE(mean.requires_grad()) << result;
        mean.set_requires_grad(false);
      }
    }
  }
}

// A mark of a tensor that no operator of the call reads.
TEST(CallEffects, RaiseForGradientsOfWhatIsFrozenLater) {
  RecordedPair pair(script(kLayer + R"(
    gradient = torch.autograd.grad([h.sum()], [self.b_weight], create_graph=True, allow_unused=True)[0]
    return h if gradient is None else gradient
)"));
  expect_equal_effects(pair);
  for (torch::jit::Module* module : {&pair.our_module(), &pair.their_module()}) {
    module->attr("b_weight").toTensor().set_requires_grad(false);
  }
  for (const bool is_ours : {true, false}) {
    EXPECT_THAT([&] { is_ours ? pair.ours({at::randn({5, 8})}) : pair.theirs({at::randn({5, 8})}); },
                ::testing::ThrowsMessage<std::exception>(HasSubstr("does not require grad")))
        << is_ours;
  }
}

TEST(CallEffects, ConjugateResults) {
  RecordedPair pair(script(kLayer + "    return torch.complex(h, h * 2).conj()\n"));
  for (int call = 0; call < kCalls; ++call) {
    const at::Tensor x = at::randn({5, 8});
    EXPECT_TRUE(pair.theirs({x}).toTensor().is_conj());
    EXPECT_TRUE(pair.ours({x}).toTensor().is_conj()) << call;
  }
}

// ---- gradients within a call ---------------------------------------------------------------------------------------------

TEST(CallEffects, AccumulateGradients) {
  RecordedPair pair(script(kLayer + "    h.sum().backward()\n    return torch.tanh(torch.linear(x, self.a_weight)) * 2\n"));
  expect_equal_effects(pair);
}

TEST(CallEffects, CallHooksOfGradientsWithin) {
  RecordedPair pair(script(kLayer + R"(
    gradient = torch.autograd.grad([h.sum()], [self.a_weight], create_graph=True)[0]
    assert gradient is not None
    return h.sum() + gradient.pow(2).sum()
)"));
  expect_equal_effects(pair);
  EXPECT_GE(pair.recorded().by_plan, 4U);
  int calls = 0;
  for (torch::jit::Module* module : {&pair.our_module(), &pair.their_module()}) {
    module->attr("a_weight").toTensor().register_hook([&calls](const at::Tensor& gradient) {
      ++calls;
      return gradient * 2;
    });
  }
  expect_equal_effects(pair);
  EXPECT_EQ(calls, 4 * kCalls);
}

const char* const kForces = R"(
    x.requires_grad_(True)
    energy = torch.tanh(torch.linear(torch.tanh(torch.linear(x, self.a_weight, self.a_bias)), self.b_weight)).sum()
    gradient = torch.autograd.grad([energy], [x], create_graph=CREATE)[0]
    assert gradient is not None
    return energy, -gradient
)";

std::string forces(bool create_graph) {
  std::string text = kForces;
  return script(text.replace(text.find("CREATE"), 6, create_graph ? "True" : "False"));
}

TEST(CallEffects, ComputeForces) {
  for (const bool create_graph : {true, false}) {
    RecordedPair pair(forces(create_graph));
    // Without `create_graph`, the graph of the energy is freed, and its backward raises.
    expect_equal_effects(pair, [&](const c10::IValue& result, const std::vector<at::Tensor>& arguments) {
      const at::Tensor energy = result.toTupleRef().elements()[0].toTensor();
      EXPECT_TRUE(energy.requires_grad());
      if (create_graph) {
        run_backward(result, arguments);
      } else {
        EXPECT_THAT([&] { energy.backward(); },
                    ::testing::ThrowsMessage<c10::Error>(HasSubstr("backward through the graph a second time")));
        EXPECT_THAT([&] { torch::autograd::grad({energy}, {arguments[0]}); },
                    ::testing::ThrowsMessage<c10::Error>(HasSubstr("backward through the graph a second time")));
      }
    });
    EXPECT_GE(pair.recorded().by_plan, 4U) << create_graph;
    // Neither parameters nor arguments require a gradient: the script alone asks for one.
    RecordedPair frozen(forces(create_graph));
    for (torch::jit::Module* module : {&frozen.our_module(), &frozen.their_module()}) {
      for (const at::Tensor& parameter : module->parameters()) {
        parameter.set_requires_grad(false);
      }
    }
    expect_equal_effects(frozen, [](const c10::IValue&, const std::vector<at::Tensor>&) {});
    EXPECT_GE(frozen.recorded().by_plan, 4U) << create_graph;
  }
}

// A gradient that the script computes flows through what the caller has computed the argument from.
TEST(CallEffects, FollowTheHistoryOfArguments) {
  RecordedPair pair(script(R"(
    h = torch.tanh(torch.cummax(torch.linear(x, self.a_weight), 1)[0])
    gradient = torch.autograd.grad([h.sum()], [self.a_weight], create_graph=True)[0]
    assert gradient is not None
    return h.sum() + gradient.pow(2).sum()
)"));
  for (int call = 0; call < 6; ++call) {
    const at::Tensor noise = at::randn({8, 8});
    const at::Tensor ours = pair.ours({pair.our_module().attr("a_weight").toTensor() * noise}).toTensor();
    const at::Tensor theirs = pair.theirs({pair.their_module().attr("a_weight").toTensor() * noise}).toTensor();
    ours.backward();
    theirs.backward();
    EXPECT_TRUE(at::allclose(ours, theirs, 1e-4, 1e-6)) << call;
    pair.expect_equal_gradients();
  }
}

// Runs a call with its backward for each number of atoms.
void expect_equal_for_each_size(RecordedPair& pair, const std::vector<int64_t>& sizes) {
  for (const int64_t atoms : sizes) {
    at::manual_seed(atoms);
    const at::Tensor x = at::randn({atoms, 8});
    const at::Tensor their_x = x.clone();
    run_backward(pair.ours({x}), {});
    run_backward(pair.theirs({their_x}), {});
    expect_equal_state(x, their_x, std::to_string(atoms) + " atoms");
    pair.expect_equal_gradients();
  }
}

// The number of neighbors depends on elements: what follows is recorded.
TEST(CallEffects, RecordWhatFollowsANeighborList) {
  RecordedPair pair(script(R"(
    x.requires_grad_(True)
    distances = torch.cdist(x.detach(), x.detach())
    pairs = torch.nonzero(distances < 4.0).t()
    r = x[pairs[0]] - x[pairs[1]]
    energy = torch.tanh(torch.linear(r, self.a_weight, self.a_bias)).sum() / x.size(0)
    gradient = torch.autograd.grad([energy], [x], create_graph=True)[0]
    assert gradient is not None
    return energy, -gradient
)"));
  expect_equal_for_each_size(pair, {5, 5, 6, 6, 7, 8, 9, 10, 11, 5});
  EXPECT_GE(pair.recorded().by_plan, 5U);
}

// A tuple has a type, which LibTorch makes of the sizes of its elements.
TEST(CallEffects, LeaveSizesOfTuplesOpen) {
  RecordedPair pair(forces(/*create_graph=*/true));
  expect_equal_for_each_size(pair, {5, 5, 6, 6, 7, 8, 9, 10, 11});
  EXPECT_GE(pair.recorded().by_plan, 5U);
  EXPECT_LE(pair.recorded().recorded, 2U);
}

TEST(CallEffects, MarkIntermediates) {
  RecordedPair pair(script(R"(
    strain = torch.zeros(8, 8)
    strain.requires_grad_(True)
    y = torch.matmul(x, strain + torch.eye(8))
    energy = torch.tanh(torch.linear(y, self.a_weight)).sum()
    stress = torch.autograd.grad([energy], [strain], create_graph=True)[0]
    assert stress is not None
    return energy, stress
)"));
  expect_equal_effects(pair);
  EXPECT_GE(pair.recorded().by_plan, 4U);
  expect_equal_effects(pair, [&](const c10::IValue& result, const std::vector<at::Tensor>&) {
    const at::Tensor stress = result.toTupleRef().elements()[1].toTensor();
    stress.pow(2).sum().backward();
  });
}

// ---- gradients of gradients of what ran without
// ----------------------------------------------------------------------------

void differentiate_twice(RecordedPair& pair, const c10::IValue& result) {
  for (torch::jit::Module* module : {&pair.our_module(), &pair.their_module()}) {
    const at::Tensor weight = module->attr("a_weight").toTensor();
    const auto first = torch::autograd::grad({result.toTensor().pow(2).sum()}, {weight}, {}, true, /*create_graph=*/true,
                                             /*allow_unused=*/true);
    if (first[0].defined()) {
      first[0].pow(2).sum().backward();
    }
  }
}

TEST(CallEffects, KeepGradModesInBackwardOfBackward) {
  for (const char* body : {
           "    torch.set_grad_enabled(False)\n    self.mean.mul_(0.5).add_(h.mean(0))\n"
           "    torch.set_grad_enabled(True)\n    return h - self.mean\n",
           "    torch.set_grad_enabled(False)\n    m = h * 2\n    torch.set_grad_enabled(True)\n    return h * m\n",
           "    k = h + 1\n    torch.set_grad_enabled(False)\n    k.mul_(0.5)\n    torch.set_grad_enabled(True)\n    return "
           "k\n",
           "    g = torch.autograd.grad([h.sum()], [self.a_weight], retain_graph=True)[0]\n"
           "    assert g is not None\n    return h.sum() * g.sum()\n",
       }) {
    SCOPED_TRACE(body);
    RecordedPair pair(script(kLayer + body), true);
    expect_equal_effects(
        pair, [&](const c10::IValue& result, const std::vector<at::Tensor>&) { differentiate_twice(pair, result); });
  }
}

// Backward of backward reads the argument as autograd has saved it, with the mark that it has by then.
TEST(CallEffects, MarkArgumentsAfterTheirUse) {
  for (const char* use : {"", "    x = x * 2\n"}) {
    RecordedPair pair(script(use + kLayer + "    x.requires_grad_(True)\n    return h\n"));
    expect_equal_effects(
        pair, [&](const c10::IValue& result, const std::vector<at::Tensor>&) { differentiate_twice(pair, result); });
  }
}

// The program may write what backward does not need.
TEST(CallEffects, DifferentiateTwiceAfterWritesOfWhatNoOperatorReads) {
  RecordedPair pair("def forward(self, x: Tensor, other: Tensor):\n" + kLayer + "    return h\n");
  for (int call = 0; call < kCalls; ++call) {
    const at::Tensor x = at::randn({5, 8});
    const at::Tensor other = at::randn({5, 8});
    const c10::IValue ours = pair.ours({x, other});
    const c10::IValue theirs = pair.theirs({x, other});
    other.add_(1);
    for (const bool is_ours : {true, false}) {
      const at::Tensor weight = (is_ours ? pair.our_module() : pair.their_module()).attr("a_weight").toTensor();
      const at::Tensor loss = (is_ours ? ours : theirs).toTensor().pow(2).sum();
      torch::autograd::grad({loss}, {weight}, {}, true, /*create_graph=*/true)[0].pow(2).sum().backward();
    }
    pair.expect_equal_gradients();
  }
}

// Nodes that save no tensor free none.
TEST(CallEffects, RunBackwardTwiceThroughWhatSavesNothing) {
  for (const char* body : {"    return torch.cat([x[:, :3], x[:, 3:] * 2], 1) + self.a_bias\n",
                           "    return torch.cummax(x, 1)[0] + self.a_bias\n"}) {
    RecordedPair pair(script(body));
    expect_equal_effects(
        pair,
        [](const c10::IValue& result, const std::vector<at::Tensor>&) {
          const at::Tensor loss = result.toTensor().sum();
          loss.backward();
          loss.backward();
        },
        [](const at::Tensor& x) { return x; }, /*requires_grad=*/std::string(body).find("cummax") == std::string::npos);
  }
}

TEST(CallEffects, ReadWhatDataWritesInBackwardOfBackward) {
  RecordedPair pair(script(kLayer + "    self.a_weight.data.mul_(0.99)\n    return h * 2\n"));
  expect_equal_effects(
      pair, [&](const c10::IValue& result, const std::vector<at::Tensor>&) { differentiate_twice(pair, result); });
}

TEST(CallEffects, WriteBuffersThatBackwardReads) {
  for (const char* body :
       {"    self.var.add_(1)\n    return h * self.var\n",
        "    y = torch.linear(x, self.a_weight).t().contiguous().t()\n    self.mean.add_(0.125)\n"
        "    y = y - self.mean * 0.1\n    return torch.layer_norm(y, [8], self.a_bias, self.mean) * 2\n",
        "    for i in range(2):\n        self.mean.add_(0.125)\n        x = x - self.mean * 0.1\n"
        "    return torch.layer_norm(torch.linear(x, self.a_weight), [8], self.a_bias, self.mean) * 2\n"}) {
    RecordedPair pair(script(kLayer + body), true);
    expect_equal_effects(pair);
  }
}

// A batch norm saves its statistics, which the script then writes.
TEST(CallEffects, RaiseWhereStatisticsAreWrittenAgain) {
  RecordedPair pair(script("    h = torch.batch_norm(torch.linear(x, self.a_weight), None, None, self.mean, self.var, True, "
                           "0.1, 1e-5, True)\n"
                           "    self.mean.add_(0.125)\n    return h\n"),
                    true);
  for (int call = 0; call < 6; ++call) {
    const at::Tensor x = at::randn({5, 8});
    EXPECT_THROW(pair.theirs({x}).toTensor().sum().backward(), c10::Error);
    EXPECT_THROW(pair.ours({x}).toTensor().sum().backward(), c10::Error) << call;
  }
}

// A backward frees what the operators on its way have saved. A product by a number has saved nothing.
TEST(CallEffects, RunBackwardAgainThroughOperatorsThatSaveNothing) {
  const std::string shared = "    h = torch.linear(x, self.a_weight) * 1.5\n";
  const auto twice = [](const c10::IValue& results) -> std::string {
    const auto& both = results.toTupleRef().elements();
    both[0].toTensor().sum().backward();
    try {
      both[1].toTensor().sum().backward();
    } catch (const c10::Error& error) {
      return error.what_without_backtrace();
    }
    return "";
  };
  for (const std::string& text : {
           std::string("    h = x * 1.5 + 2.0\n    return h.pow(2), h.sin()\n"),
           std::string(
               "    h = (x * 1.5).t().contiguous()\n    return torch.linear(h.t(), self.a_weight).tanh(), h.exp()\n"),
           std::string("    h = torch.tanh(x * 1.5)\n    return h.pow(2), h.sin()\n"),
           shared + "    return h.pow(2), h.sin()\n",
       }) {
    RecordedPair pair(script(text));
    for (int call = 0; call < 8; ++call) {
      const at::Tensor x = at::randn({5, 8});
      const at::Tensor our_x = x.clone().set_requires_grad(true);
      const at::Tensor their_x = x.clone().set_requires_grad(true);
      pair.clear_gradients();
      EXPECT_EQ(twice(pair.ours({our_x})), twice(pair.theirs({their_x}))) << text << call;
      EXPECT_TRUE(at::allclose(our_x.grad(), their_x.grad(), 1e-4, 1e-6)) << text << call;
    }
  }
  RecordedPair pair(
      script("    h = x * 1.5\n    g = torch.autograd.grad([h.pow(2).sum()], [x])[0]\n    assert g is not None\n"
             "    return h + g.sum() * 0.1\n"));
  expect_equal_uses(pair, [](const c10::IValue& result, const at::Tensor&) { result.toTensor().sum().backward(); });
}

// Runs of the recorded plan of that name.
uint64_t runs_of(const RecordedPair& pair, const std::string& method) {
  uint64_t runs = 0;
  for (const Explanation& plan : pair.recorded().plans) {
    runs += plan.method == method ? plan.counters.invocations : 0;
  }
  return runs;
}

// The program takes forces of the energy and trains on them. Each call has another number of atoms, whose positions are a
// leaf or have a history.
TEST(CallEffects, RecordBackwardOfBackward) {
  for (const bool is_leaf : {true, false}) {
    RecordedPair pair(script(kLayer + "    return (torch.linear(h, self.b_weight) / x.size(0)).pow(2).sum()\n"));
    const auto train = [&](const c10::IValue& energy, const at::Tensor& x) {
      const at::Tensor forces =
          torch::autograd::grad({energy.toTensor()}, {x}, {}, /*retain_graph=*/true, /*create_graph=*/true)[0];
      (energy.toTensor() + forces.pow(2).sum()).backward();
      return forces.detach();
    };
    for (const int64_t atoms : {5, 5, 6, 6, 7, 8, 9, 10, 11, 12, 5, 7}) {
      SCOPED_TRACE(std::to_string(atoms) + " atoms");
      const at::Tensor ours = at::randn({atoms, 8}).set_requires_grad(true);
      const at::Tensor theirs = ours.detach().clone().set_requires_grad(true);
      const at::Tensor our_x = is_leaf ? ours : ours * 2;
      const at::Tensor their_x = is_leaf ? theirs : theirs * 2;
      pair.clear_gradients();
      const at::Tensor our_forces = train(pair.ours({our_x}), our_x);
      EXPECT_TRUE(at::allclose(our_forces, train(pair.theirs({their_x}), their_x), 1e-4, 1e-6));
      expect_equal_state(ours, theirs, "positions");
      pair.expect_equal_gradients();
    }
    EXPECT_GE(runs_of(pair, "forward (backward) (recorded)"), 4U);
    EXPECT_GE(runs_of(pair, "forward (backward) (recorded backward)"), 4U);
  }
}

// A backward in the script frees what leads to a leaf that requires no gradient any longer, or that nobody else has.
const std::array<const char*, 2> kFreeHistory = {R"(
    self.mean.requires_grad_(True)
    y = x * (self.mean + 1)
    self.mean.requires_grad_(False)
    y.pow(2).mean().backward()
    return torch.linear(y, self.a_weight).cummax(1)[0]
)",
                                                 R"(
    strain = torch.zeros(8, 8)
    strain.requires_grad_(True)
    y = torch.matmul(x, strain + torch.eye(8))
    stress = torch.autograd.grad([y.pow(2).sum()], [strain], create_graph=True, retain_graph=False)[0]
    assert stress is not None
    return torch.linear(y + stress.sum(), self.a_weight).cummax(1)[0]
)"};

TEST(CallEffects, RaiseInBackwardThroughWhatTheScriptHasFreed) {
  for (const char* body : kFreeHistory) {
    SCOPED_TRACE(body);
    RecordedPair pair(script(body), true);
    for (int call = 0; call < kCalls; ++call) {
      const at::Tensor x = at::randn({5, 8});
      for (const bool is_ours : {true, false}) {
        const at::Tensor loss = (is_ours ? pair.ours({x}) : pair.theirs({x})).toTensor().pow(2).sum();
        const at::Tensor weight = (is_ours ? pair.our_module() : pair.their_module()).attr("a_weight").toTensor();
        EXPECT_NO_THROW(torch::autograd::grad({loss}, {weight}, {}, /*retain_graph=*/true)) << is_ours;
        EXPECT_THAT([&] { loss.backward(); },
                    ::testing::ThrowsMessage<c10::Error>(HasSubstr("backward through the graph a second time")))
            << is_ours;
      }
    }
  }
}

// ---- what is no operator of LibTorch
// -----------------------------------------------------------------------------------------

// Expects each call of `forward`, and each step, to count as LibTorch's does.
void expect_ticks(const std::string& source, const std::function<double()>& count, double least = 1,
                  const std::function<void(torch::jit::Module&)>& prepare = {}) {
  torch::jit::Module plain = two_layers(source, false, prepare);
  torch::jit::setGraphExecutorOptimize(false);
  const double start = count();
  plain.forward({at::randn({5, 8})});
  const double per_call = count() - start;
  torch::jit::setGraphExecutorOptimize(true);
  EXPECT_GE(per_call, least) << source;
  for (const bool by_steps : {false, true}) {
    for (const CompileMode mode : {CompileMode::kBlocking, CompileMode::kBackground}) {
      torch::jit::Module script_module = two_layers(source, false, prepare);
      const Module module = accelerate(script_module, Options().compile(mode));
      torch::optim::SGD optimizer(module.parameters(), 1e-3);
      TrainStep step(
          module, [](const at::Tensor& y, const at::Tensor& target) { return (y - target).pow(2).mean(); }, optimizer);
      const double before = count();
      for (int call = 0; call < kCalls; ++call) {
        const at::Tensor x = at::randn({5, 8});
        if (by_steps) {
          step({x}, {at::zeros({})});
          step.wait_for_compiles();
        } else {
          module.forward({x}).toTensor().sum().backward();
          module.method("forward").wait_for_compiles();
        }
      }
      EXPECT_EQ(count() - before, per_call * kCalls) << by_steps << source;
    }
  }
}

TEST(CallEffects, CallOperatorsOfLibrariesAsOftenAsTheScript) {
  const auto count = [] { return static_cast<double>(ticks); };
  expect_ticks(script("    call_effects.tick(x)\n" + kLayer + "    return h\n"), count);
  expect_ticks(script(kLayer + "    call_effects.tick(h)\n    return h\n"), count);
  expect_ticks(script("    y = call_effects.counted(x)\n    z = call_effects.counted(x)\n" + kLayer +
                      "    return h + y.sum() + z.sum()\n"),
               count, 2);
  expect_ticks(script(kLayer + "    for i in range(3):\n        h = call_effects.counted(h.detach()) + h\n    return h\n"),
               count, 3);
}

TEST(CallEffects, ReadSettingsOfLibraries) {
  for (const bool of_argument : {true, false}) {
    RecordedPair pair(script(kLayer + "    return h + call_effects.scaled(" + (of_argument ? "x.sum()" : "h") + ")\n"));
    int calls = 0;
    expect_equal_effects(pair, run_backward, [&](const at::Tensor& x) {
      scale_of_library = 1 + calls++ / 2 % 7 * 0.25;  // the same for both
      return x;
    });
    scale_of_library = 1;
  }
}

TEST(CallEffects, RecordOperatorsThatTheirLibraryCallsPure) {
  RecordedPair pair(script(kLayer + "    return call_effects.doubled(h)\n"));
  expect_equal_effects(pair);
  EXPECT_GE(pair.recorded().by_plan, 4U);
}

TEST(CallEffects, CallMethodsOfCustomClasses) {
  const auto counter = c10::make_intrusive<Counter>();
  const auto add_counter = [&](torch::jit::Module& module) {
    module.register_attribute("counter", c10::IValue(counter).type(), counter);
  };
  expect_ticks(
      script("    n = self.counter.next()\n" + kLayer + "    return h * n\n"),
      [&] { return static_cast<double>(counter->count); }, 1, add_counter);
}

// Counts what reaches the program's handler.
class CountingWarnings final : public c10::WarningHandler {
 public:
  void process(const c10::Warning& /*warning*/) override { ++count; }
  int count = 0;
};

TEST(CallEffects, WarnInEachCall) {
  CountingWarnings warnings;
  const c10::WarningUtils::WarningHandlerGuard guard(&warnings);
  expect_ticks(script("    torch.warn('careful')\n" + kLayer + "    return h\n"),
               [&] { return static_cast<double>(warnings.count); });
}

TEST(CallEffects, ShowScopesToObserversOnce) {
  static int scopes = 0;
  const auto handle = at::addThreadLocalCallback(at::RecordFunctionCallback([](const at::RecordFunction& function) {
    scopes += std::string(function.name()) == "part of the model" ? 1 : 0;
    return std::unique_ptr<at::ObserverContext>();
  }));
  expect_ticks(script("    r = profiler._record_function_enter_new('part of the model')\n" + kLayer +
                      "    profiler._record_function_exit(r)\n    return h\n"),
               [] { return static_cast<double>(scopes); });
  at::removeCallback(handle);
}

// ---- steps ---------------------------------------------------------------------------------------------------------------

const char* const kForcesAlone = R"(
def forward(self, x):
    MARK
    energy = torch.tanh(torch.linear(torch.tanh(torch.linear(x, self.a_weight, self.a_bias)), self.b_weight)).sum()
    gradient = torch.autograd.grad([energy], [x], create_graph=True)[0]
    assert gradient is not None
    return -gradient
)";

TEST(CallEffects, TrainOnForcesOfAnySize) {
  for (const bool script_marks : {true, false}) {
    std::string source = kForcesAlone;
    source.replace(source.find("MARK"), 4, script_marks ? "x.requires_grad_(True)" : "pass");
    TwoTrainings both(two_layers(source), sgd);
    for (const int64_t atoms : {5, 5, 6, 6, 7, 8, 5, 9, 6, 7, 7, 12, 6, 5}) {
      at::manual_seed(atoms);
      const at::Tensor x = at::randn({atoms, 8}).set_requires_grad(!script_marks);
      const at::Tensor their_x = x.detach().clone().set_requires_grad(!script_marks);
      both.train_on(x, their_x, at::randn({atoms, 8}), 1);
      expect_equal_state(x, their_x, std::to_string(atoms) + " atoms");
      both.step().wait_for_compiles();
    }
    EXPECT_GE(both.step().explain().updated_by_plan, 6U) << script_marks;
  }
}

TEST(CallEffects, TrainThroughOperatorsWithoutAKernelForAutograd) {
  TwoTrainings both(two_layers(script(kLayer + "    return call_effects.counted(h)\n")), sgd);
  for (uint64_t step = 1; step < 5; ++step) {
    both.train(4, step);
  }
}

TEST(CallEffects, RaiseInStepsThroughWhatTheScriptHasFreed) {
  for (const char* body : kFreeHistory) {
    const torch::jit::Module module = two_layers(script(body), true);
    torch::optim::SGD optimizer(parameters_of(module), 0.1);
    TrainStep step(
        accelerate(module, Options().compile(CompileMode::kBlocking)),
        [](const at::Tensor& y, const at::Tensor& target) { return at::mse_loss(y, target); }, optimizer);
    for (int call = 0; call < 3; ++call) {
      EXPECT_THAT([&] { step({at::randn({4, 8})}, {at::zeros({4, 8})}); },
                  ::testing::ThrowsMessage<c10::Error>(HasSubstr("backward through the graph a second time")))
          << body;
    }
  }
}

// A backward in the script adds to the gradient of an argument, which the caller may have had before.
TEST(CallEffects, AddToGradientsOfArgumentsInSteps) {
  TwoTrainings both(
      two_layers(script("    for i in range(2):\n        x.pow(2).mean().backward()\n" + kLayer + "    return h\n")), sgd);
  for (const int64_t rows : {4, 4, 6, 6, 8, 8}) {
    const at::Tensor x = at::randn({rows, 8}).set_requires_grad(true);
    if (rows == 8) {
      x.mutable_grad() = at::ones({rows, 8});
    }
    const at::Tensor their_x = x.detach().clone().set_requires_grad(true);
    their_x.mutable_grad() = x.grad().defined() ? x.grad().clone() : at::Tensor();
    both.train_on(x, their_x, at::randn({rows, 8}), 1);
    expect_equal_state(x, their_x, std::to_string(rows) + " rows");
  }
}

// A recording with symbolic sizes ends before the operator of the library, and the step runs again.
TEST(CallEffects, MarkArgumentsOnceInStepsThatRunAgain) {
  TwoTrainings both(two_layers(script(kLayer + "    x.requires_grad_(True)\n    x.pow(2).mean().backward()\n"
                                               "    call_effects.tick(x)\n    return h\n")),
                    sgd);
  for (const int64_t rows : {4, 4, 6, 6, 8, 8, 10}) {
    const at::Tensor x = at::randn({rows, 8});
    const at::Tensor their_x = x.clone();
    both.train_on(x, their_x, at::randn({rows, 8}), 1);
    expect_equal_state(x, their_x, std::to_string(rows) + " rows");
  }
}

// The method is cut after the operator of a library. Its first part reads the buffer under two names in one group.
TEST(CallEffects, WriteBuffersBeforeOperatorsOfLibraries) {
  TwoTrainings both(
      two_layers(script("    for i in range(2):\n        self.mean.add_(0.125)\n        x = x - self.mean * 0.1\n"
                        "    y = torch.tanh(torch.linear(x, self.a_weight))\n"
                        "    return y + call_effects.scaled(y) * 0.1\n"),
                 true),
      sgd);
  for (const int64_t rows : {4, 4, 6, 6, 8, 8, 5, 4}) {
    SCOPED_TRACE(std::to_string(rows) + " rows");
    both.train(rows, 1);
  }
}

TEST(CallEffects, DropGradientsOfParametersThatAreDetachedInSteps) {
  TwoTrainings both(two_layers(script(kLayer + "    self.a_weight.detach_()\n    return torch.linear(h, self.b_weight)\n")),
                    sgd);
  for (uint64_t step = 1; step < 5; ++step) {
    both.train(4, step);
  }
}

TEST(CallEffects, ClipGradientsOfParametersThatTheScriptMarks) {
  TwoTrainings both(two_layers(script("    self.a_weight.requires_grad_(True)\n" + kLayer + "    return h * self.b_bias\n")),
                    sgd, TrainOptions().clip_norm(0.05));
  for (uint64_t step = 1; step < 6; ++step) {
    for (torch::jit::Module* module : {&both.ours(), &both.theirs()}) {
      module->attr("a_weight").toTensor().set_requires_grad(false);
      module->attr("b_bias").toTensor().data().fill_(0.5);
    }
    both.train(4, step);
  }
}

TEST(CallEffects, CountWritesOfArgumentsInSteps) {
  TwoTrainings both(two_layers(script("    x.add_(1)\n" + kLayer + "    return h\n")), sgd);
  for (const int64_t rows : {4, 4, 6, 6, 8, 8}) {
    const at::Tensor x = at::randn({rows, 8}).clone();
    const at::Tensor their_x = x.clone();
    both.train_on(x, their_x, at::randn({rows, 8}), 1);
    EXPECT_EQ(x._version(), their_x._version()) << rows;
  }
}

// Sizes that change are recorded with symbols, which may raise halfway: the step then runs again.
TEST(CallEffects, CallOperatorsOfLibrariesOnceInStepsOfAnySize) {
  torch::jit::Module module =
      two_layers(script("    call_effects.tick(x)\n    y = torch.linear(x, self.a_weight)\n"
                        "    return y.view(x.size(0) // 2, 2, -1).tanh().sum(1)\n"));
  torch::optim::SGD optimizer(parameters_of(module), 0.1);
  TrainStep step(
      accelerate(module, Options().compile(CompileMode::kBlocking)),
      [](const at::Tensor& y, const at::Tensor&) {
        const bool is_raised = y.sym_sizes()[0].is_heap_allocated();  // only while sizes are symbolic
        TORCH_CHECK(!is_raised, "a loss function that takes no symbolic sizes");
        return y.pow(2).mean();
      },
      optimizer);
  const int64_t before = ticks;
  int64_t steps = 0;
  for (const int64_t rows : {4, 4, 6, 6, 8, 8, 10}) {
    step({at::randn({rows, 8})}, {at::zeros({})});
    EXPECT_EQ(ticks - before, ++steps) << rows;
  }
}

// LibTorch then fills memory that it allocates below the dispatcher.
TEST(CallEffects, TrainWithDeterministicAlgorithms) {
  at::globalContext().setDeterministicAlgorithms(true, /*warn_only=*/false);
  TwoTrainings both(
      two_layers(script("    h = torch.linear(x, self.a_weight)\n    h[:, 0] = 1.0\n    return torch.tanh(h)\n")), sgd);
  for (uint64_t step = 1; step < 5; ++step) {
    both.train(4, step);
  }
  at::globalContext().setDeterministicAlgorithms(false, /*warn_only=*/false);
}

TEST(CallEffects, MarkTargets) {
  TwoTrainings both(two_layers(script(kLayer + "    return h\n")), sgd, {},
                    [](const at::Tensor& y, const at::Tensor& target) { return at::mse_loss(y, target.requires_grad_()); });
  for (const int64_t rows : {4, 4, 6, 6, 8, 5, 4}) {
    both.train(rows, 1);
    both.step().wait_for_compiles();
  }
  EXPECT_GE(both.step().explain().updated_by_plan, 3U);
}

// ---- functions and backwards -------------------------------------------------------------------------------------------

TEST(CallEffects, MarkArgumentsOfFunctions) {
  const TracedFunction function = trace(
      [](const std::vector<at::Tensor>& arguments) {
        arguments[1].requires_grad_();
        const at::Tensor y = arguments[0] * arguments[1];
        y.retain_grad();
        return std::vector<at::Tensor>{y};
      },
      Options().compile(CompileMode::kBlocking));
  for (int call = 0; call < 3; ++call) {
    const at::Tensor x = at::randn({3});
    const at::Tensor marked = at::randn({3});
    const at::Tensor y = function({x, marked}).front();
    y.sum().backward();
    ASSERT_TRUE(marked.grad().defined()) << call;
    EXPECT_TRUE(at::equal(marked.grad(), x)) << call;
    EXPECT_TRUE(y.retains_grad()) << call;
    EXPECT_TRUE(y.grad().defined()) << call;
  }
}

TEST(CallEffects, RetainGradientsOfArgumentsOfFunctions) {
  const TracedFunction function = trace(
      [](const std::vector<at::Tensor>& arguments) {
        arguments[0].retain_grad();
        return std::vector<at::Tensor>{arguments[0] * 2};
      },
      Options().compile(CompileMode::kBlocking));
  for (int call = 0; call < 3; ++call) {
    const at::Tensor x = at::randn({3}).set_requires_grad(true) * 1.0;
    function({x}).front().sum().backward();
    ASSERT_TRUE(x.retains_grad()) << call;
    EXPECT_TRUE(at::equal(x.grad(), at::full({3}, 2.0))) << call;
  }
}

TEST(CallEffects, AddToGradientsOfArgumentsOfFunctions) {
  const TracedFunction function = trace(
      [](const std::vector<at::Tensor>& arguments) {
        (arguments[0] * 2).sum().backward();
        return std::vector<at::Tensor>{arguments[0].detach() * 3};
      },
      Options().compile(CompileMode::kBlocking));
  for (int call = 0; call < 4; ++call) {
    const at::Tensor x = at::randn({3}).set_requires_grad(true);
    if (call > 1) {
      x.mutable_grad() = at::ones({3});
    }
    function({x});
    ASSERT_TRUE(x.grad().defined()) << call;
    EXPECT_TRUE(at::equal(x.grad(), at::full({3}, call > 1 ? 3.0 : 2.0))) << call;
  }
}

TEST(CallEffects, RaiseWhereFunctionsDetachViews) {
  const TracedFunction function = trace(
      [](const std::vector<at::Tensor>& arguments) {
        arguments[0].detach_();
        return std::vector<at::Tensor>{arguments[0] * 2};
      },
      Options().compile(CompileMode::kBlocking));
  for (int call = 0; call < 4; ++call) {
    EXPECT_THAT([&] { function({at::randn({2, 3}).select(0, 0)}); },
                ::testing::ThrowsMessage<c10::Error>(HasSubstr("Can't detach views in-place")));
    EXPECT_NO_THROW(function({at::randn({3})}));
  }
}

TEST(CallEffects, RaiseInBackwardOfFreedWritesOfViews) {
  BackwardCache cache(Options().compile(CompileMode::kBlocking));
  for (int call = 0; call < 3; ++call) {
    const at::Tensor h = at::randn({4}).set_requires_grad(true).clone();
    h.slice(0, 2).add_(1);
    h.sum().backward();
    const CompiledBackward scope(cache);
    EXPECT_THAT([&] { (h * 2).sum().backward(); },
                ::testing::ThrowsMessage<std::exception>(HasSubstr("backward through the graph a second time")));
  }
}

}  // namespace
}  // namespace sconce::testing
