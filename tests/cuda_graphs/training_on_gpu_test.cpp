// Forward and backward on the simulated GPU: outputs and gradients of LibTorch on the CPU, in every call, with the ranges of
// differentiable subgraphs captured.
#include "tests/cuda_graphs/module_on_both.h"
#include "tests/support/graphs.h"

#include <ATen/ATen.h>
#include <c10/core/GradMode.h>
#include <c10/util/Exception.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/csrc/autograd/autograd.h>

#include <algorithm>
#include <functional>
#include <string>
#include <vector>

namespace sconce::testing {
namespace {

using ::testing::IsEmpty;

at::Tensor parameter(at::IntArrayRef sizes) { return (at::randn(sizes) * 0.5).set_requires_grad(true); }

// A module, and the arguments of its calls.
struct Trained {
  const char* name;
  const char* methods;
  std::function<Attributes()> attributes;
  std::function<std::vector<c10::IValue>(int call)> arguments;
  bool has_subgraphs = true;  // else autograd records every operator
};

std::vector<c10::IValue> matrix(int /*call*/) { return {at::randn({4, 6})}; }

const std::vector<Trained>& trained_modules() {
  static const std::vector<Trained> modules = {
      {"perceptron", R"(
def forward(self, x):
    h = torch.tanh(torch.linear(x, self.w, self.b))
    return torch.linear(h, self.v) * 0.5
)",
       [] { return Attributes{{"w", parameter({5, 6})}, {"b", parameter({5})}, {"v", parameter({3, 5})}}; }, matrix},
      {"lstm loop", R"(
def forward(self, x):
    h = torch.zeros_like(x[0])
    c = torch.zeros_like(h)
    for t in range(x.size(0)):
        gates = torch.linear(x[t], self.w, self.b) + torch.linear(h, self.v)
        i, f, g, o = gates.chunk(4, 1)
        c = torch.sigmoid(f) * c + torch.sigmoid(i) * torch.tanh(g)
        h = torch.sigmoid(o) * torch.tanh(c)
    return h, c
)",
       [] { return Attributes{{"w", parameter({16, 4})}, {"b", parameter({16})}, {"v", parameter({16, 4})}}; },
       [](int) { return std::vector<c10::IValue>{at::randn({3, 2, 4}).set_requires_grad(true)}; }},
      {"attention", R"(
def forward(self, x):
    n = torch.layer_norm(x, [8], self.g, self.b)
    q = torch.linear(n, self.wq)
    k = torch.linear(n, self.wk)
    v = torch.linear(n, self.wv)
    p = torch.softmax(torch.matmul(q, k.transpose(-2, -1)) * 0.35, -1)
    return x + torch.matmul(p, v)
)",
       [] {
         return Attributes{{"g", parameter({8})},
                           {"b", parameter({8})},
                           {"wq", parameter({8, 8})},
                           {"wk", parameter({8, 8})},
                           {"wv", parameter({8, 8})}};
       },
       [](int) { return std::vector<c10::IValue>{at::randn({2, 3, 8}).set_requires_grad(true)}; }},
      {"convolutions", R"(
def forward(self, x):
    h = torch.relu(torch.conv2d(x, self.w, self.b, [1, 1], [1, 1]))
    h = torch.max_pool2d(h, [2, 2])
    h = torch.sigmoid(torch.conv2d(h, self.v, None, [1, 1], [1, 1])) * h
    return torch.linear(h.flatten(1), self.u)
)",
       [] {
         return Attributes{{"w", parameter({3, 2, 3, 3})},
                           {"b", parameter({3})},
                           {"v", parameter({3, 3, 3, 3})},
                           {"u", parameter({4, 12})}};
       },
       [](int) { return std::vector<c10::IValue>{at::randn({2, 2, 4, 4})}; }},
      {"batch norm", R"(
def forward(self, x):
    h = torch.batch_norm(torch.linear(x, self.w), self.g, self.b, self.mean, self.var, True, 0.1, 1e-5, True)
    return torch.relu(h) * torch.sigmoid(h)
)",
       [] {
         return Attributes{{"w", parameter({5, 6})},
                           {"g", parameter({5})},
                           {"b", parameter({5})},
                           {"mean", at::zeros({5})},
                           {"var", at::ones({5})}};
       },
       matrix},
      {"embedding", R"(
def forward(self, x):
    h = torch.embedding(self.w, x)
    return torch.tanh(torch.linear(h.sum(1), self.v)) * 2
)",
       [] { return Attributes{{"w", parameter({10, 6})}, {"v", parameter({4, 6})}}; },
       [](int) { return std::vector<c10::IValue>{at::randint(0, 10, {3, 4})}; }},
      {"writes in place", R"(
def forward(self, x):
    h = torch.linear(x, self.w)
    h.add_(self.b).mul_(0.5)
    h.relu_()
    y = torch.zeros_like(h)
    y[:, 1:].copy_(h[:, :-1])
    self.calls.add_(1)
    z = torch.sigmoid(y) * h
    z[0] = h[1]
    return z, self.calls * 2
)",
       [] { return Attributes{{"w", parameter({5, 6})}, {"b", parameter({5})}, {"calls", at::zeros({2})}}; }, matrix,
       /*has_subgraphs=*/false},
      {"views and several outputs", R"(
def forward(self, x):
    h = torch.tanh(torch.mm(x, self.w))
    a, b = h.split(2, 1)
    s = torch.sigmoid(a) * b
    return s, s.t(), h[0], h.view(-1), torch.cat([a, s], 1).permute([1, 0]), self.w[1] * 2, x
)",
       [] { return Attributes{{"w", parameter({6, 4})}}; }, matrix},
      {"branches", R"(
def forward(self, x, flag: bool):
    h = torch.tanh(torch.mm(x, self.w))
    if flag:
        h = torch.relu(h + 0.1) * x.sum()
    else:
        h = torch.sigmoid(h)
    return torch.mm(h, self.v) + h
)",
       [] { return Attributes{{"w", parameter({6, 4})}, {"v", parameter({4, 4})}}; },
       [](int call) { return std::vector<c10::IValue>{at::randn({4, 6}), call % 4 < 2}; }},
  };
  return modules;
}

class TrainingOnGpu : public ::testing::Test {
 protected:
  void TearDown() override { EXPECT_THAT(gpu_.driver().misuse(), IsEmpty()); }
  SimulatedGpu gpu_;
};

TEST_F(TrainingOnGpu, GivesGradientsInEveryCall) {
  for (const Trained& each : trained_modules()) {
    ModuleOnBoth both(gpu_, each.methods, each.attributes());
    for (int call = 1; call <= 8; ++call) {
      both.train(each.arguments(call), std::string(each.name) + ", call " + std::to_string(call));
    }
    const TrainingCounts counts = both.counts();
    EXPECT_EQ(counts.forward.ranges > 0, each.has_subgraphs) << each.name << "\n" << counts.own.reasons;
    if (!each.has_subgraphs) {
      continue;
    }
    EXPECT_GE(counts.forward.replays, 4U) << each.name << "\n" << counts.forward.reasons;
    EXPECT_GE(counts.backward.replays, 4U) << each.name << "\n" << counts.backward.reasons;
  }
}

const Trained& trained(const std::string& name) {
  const auto& all = trained_modules();
  const auto found = std::find_if(all.begin(), all.end(), [&](const Trained& each) { return each.name == name; });
  TORCH_CHECK(found != all.end(), name);
  return *found;
}

ModuleOnBoth both_of(SimulatedGpu& gpu, const Trained& each) { return {gpu, each.methods, each.attributes()}; }

// Replays of forward write into the memory of earlier replays. What backward needs of earlier calls must lie elsewhere.
TEST_F(TrainingOnGpu, RunsBackwardLongAfterForward) {
  for (const Trained& each : trained_modules()) {
    ModuleOnBoth both = both_of(gpu_, each);
    std::vector<ModuleOnBoth::Call> calls;
    const auto run_backward = [&](size_t i) {
      both.backward(calls[i]);
      both.expect_equal_gradients(calls[i], std::string(each.name) + ", call " + std::to_string(i));
    };
    if (std::string(each.name) == "writes in place" || std::string(each.name) == "batch norm") {
      continue;  // Each call changes the buffers that are compared.
    }
    for (int round = 0; round < 3; ++round) {
      calls.clear();
      both.zero_gradients();
      for (int call = 0; call < 4; ++call) {
        calls.push_back(both.forward(each.arguments(call), each.name));
      }
      // Gradients of parameters add up.
      for (const size_t i : {2U, 0U, 3U, 1U}) {
        run_backward(i);
      }
    }
  }
}

TEST_F(TrainingOnGpu, RunsBackwardTwice) {
  for (const Trained& each : trained_modules()) {
    ModuleOnBoth both = both_of(gpu_, each);
    for (int call = 0; call < 5; ++call) {
      const ModuleOnBoth::Call made = both.forward(each.arguments(call), each.name);
      both.backward(made, /*retain_graph=*/true);
      both.backward(made, /*retain_graph=*/true);
      both.expect_equal_gradients(made, std::string(each.name) + ", call " + std::to_string(call));
      both.backward(made);
      both.expect_equal_gradients(made, std::string(each.name) + ", third backward of call " + std::to_string(call));
      EXPECT_THROW(weighted_sum(made.gpu).backward(), c10::Error) << each.name;
      both.zero_gradients();
    }
  }
}

TEST_F(TrainingOnGpu, AddsUpGradientsOfSeveralCalls) {
  for (const char* name : {"perceptron", "attention", "embedding"}) {
    ModuleOnBoth both = both_of(gpu_, trained(name));
    for (int call = 0; call < 12; ++call) {
      const ModuleOnBoth::Call made = both.forward(trained(name).arguments(call), name);
      both.backward(made);
      both.expect_equal_gradients(made, std::string(name) + ", call " + std::to_string(call));
      if (call % 4 == 3) {
        both.zero_gradients();
      }
    }
    EXPECT_GE(both.counts().backward.replays, 8U) << name << "\n" << both.counts().backward.reasons;
  }
}

TEST_F(TrainingOnGpu, LeavesOutGradientsThatNothingAsksFor) {
  const Trained& each = trained("views and several outputs");
  ModuleOnBoth both = both_of(gpu_, each);
  for (int call = 0; call < 24; ++call) {
    ModuleOnBoth::Call made = both.forward(each.arguments(call), each.name);
    ModuleOnBoth::Call part = made;
    const auto keep = [call](std::vector<at::Tensor>& outputs) {
      const std::vector<at::Tensor> all = outputs;
      outputs = call % 3 == 0 ? std::vector<at::Tensor>{all[0]} : std::vector<at::Tensor>{all[size_t(call) % 3], all[4]};
    };
    keep(part.cpu);
    keep(part.gpu);
    both.backward(part);
    both.expect_equal_gradients(made, "call " + std::to_string(call));
    both.zero_gradients();
  }
}

c10::IValue in_double_precision(const c10::IValue& value) {
  const at::Tensor& tensor = value.toTensor();
  return tensor.detach().to(at::kDouble).set_requires_grad(tensor.requires_grad());
}

// Second derivatives amplify the rounding of their inputs: in float32, the two devices' results differ visibly.
Trained in_double_precision(Trained trained) {
  trained.attributes = [attributes = trained.attributes] {
    Attributes made = attributes();
    for (auto& [name, value] : made) {
      value = in_double_precision(value);
    }
    return made;
  };
  trained.arguments = [arguments = trained.arguments](int call) {
    std::vector<c10::IValue> made = arguments(call);
    for (c10::IValue& value : made) {
      value = in_double_precision(value);
    }
    return made;
  };
  return trained;
}

// Gradients of the squared norm of gradients.
TEST_F(TrainingOnGpu, DifferentiatesBackward) {
  for (const char* name : {"perceptron", "lstm loop", "attention"}) {
    const Trained each = in_double_precision(trained(name));
    ModuleOnBoth both = both_of(gpu_, each);
    for (int call = 0; call < 6; ++call) {
      const ModuleOnBoth::Call made = both.forward(each.arguments(call), name);
      const auto penalize = [](const std::vector<at::Tensor>& outputs, const std::vector<at::Tensor>& parameters) {
        const auto gradients = torch::autograd::grad({weighted_sum(outputs)}, parameters, {}, /*retain_graph=*/true,
                                                     /*create_graph=*/true);
        at::Tensor norm = gradients[0].pow(2).sum();
        for (size_t i = 1; i < gradients.size(); ++i) {
          norm = norm + gradients[i].pow(2).sum();
        }
        norm.backward();
      };
      penalize(made.cpu, parameters_of(both.cpu));
      penalize(made.gpu, parameters_of(both.gpu.script_module()));
      both.expect_equal_gradients(made, std::string(name) + ", call " + std::to_string(call));
      both.zero_gradients();
    }
  }
}

TEST_F(TrainingOnGpu, GoesOnAfterExceptions) {
  ModuleOnBoth both = both_of(gpu_, trained("perceptron"));
  for (int call = 0; call < 9; ++call) {
    const std::string where = "call " + std::to_string(call);
    if (call % 3 == 1) {
      EXPECT_ANY_THROW(both.gpu.forward({gpu_.tensor(at::randn({4, 5}))})) << where;
    }
    const ModuleOnBoth::Call made = both.forward(trained("perceptron").arguments(call), where);
    if (call % 3 == 2) {
      EXPECT_ANY_THROW(made.gpu[0].backward(gpu_.tensor(at::ones({2, 2})))) << where;
    }
    both.backward(made);
    both.expect_equal_gradients(made, where);
    both.zero_gradients();
  }
}

// LibTorch raises if backward needs a tensor that was written since.
TEST_F(TrainingOnGpu, NoticesWritesOfSavedTensors) {
  ModuleOnBoth both = both_of(gpu_, trained("perceptron"));
  for (int call = 0; call < 6; ++call) {
    const ModuleOnBoth::Call made = both.forward({at::randn({4, 6})});
    {
      const at::NoGradGuard no_grad;
      both.gpu.script_module().attr("v").toTensor().add_(1);
      both.cpu.attr("v").toTensor().add_(1);
    }
    EXPECT_THROW(weighted_sum(made.gpu).backward(), c10::Error) << "call " << call;
    EXPECT_THROW(weighted_sum(made.cpu).backward(), c10::Error) << "call " << call;
    both.zero_gradients();
    both.train({at::randn({4, 6})}, "after call " + std::to_string(call));
  }
}

TEST_F(TrainingOnGpu, FollowsParametersThatMove) {
  for (const char* name : {"perceptron", "attention", "lstm loop"}) {
    ModuleOnBoth both = both_of(gpu_, trained(name));
    const std::vector<at::Tensor> cpu = parameters_of(both.cpu);
    const std::vector<at::Tensor> gpu = parameters_of(both.gpu.script_module());
    std::vector<at::Tensor> kept;  // so that the old memory is not given to the new tensors
    for (int call = 0; call < 14; ++call) {
      const at::NoGradGuard no_grad;
      const size_t i = static_cast<size_t>(call) % cpu.size();
      if (call % 5 == 3) {  // another tensor's memory
        const at::Tensor values = at::randn_like(cpu[i]) * 0.5;
        kept.push_back(gpu[i].data());
        cpu[i].set_data(values);
        gpu[i].set_data(gpu_.tensor(values));
      } else if (call % 5 == 4) {  // other values, as from a file
        const at::Tensor values = at::randn_like(cpu[i]) * 0.5;
        cpu[i].copy_(values);
        gpu[i].copy_(gpu_.tensor(values));
      }
      const at::AutoGradMode with_grad(true);
      both.train(trained(name).arguments(call), std::string(name) + ", call " + std::to_string(call));
    }
    EXPECT_GE(both.counts().backward.replays, 8U) << name << "\n" << both.counts().backward.reasons;
  }
}

TEST_F(TrainingOnGpu, TakesCallsWithAndWithoutGradients) {
  const Trained& each = trained("attention");
  ModuleOnBoth both = both_of(gpu_, each);
  for (int call = 0; call < 16; ++call) {
    const std::string where = "call " + std::to_string(call);
    if (call % 4 == 1) {
      const at::NoGradGuard no_grad;
      both.forward(each.arguments(call), where);
    } else if (call % 4 == 2) {  // other inputs require gradients
      both.train({each.arguments(call)[0].toTensor().detach()}, where);
    } else {
      both.train(each.arguments(call), where);
    }
  }
}

TEST_F(TrainingOnGpu, TakesBatchesOfSeveralSizes) {
  for (const char* name : {"perceptron", "batch norm"}) {
    ModuleOnBoth both = both_of(gpu_, trained(name));
    for (int call = 0; call < 24; ++call) {
      both.train({at::randn({2 + call % 3, 6})}, std::string(name) + ", call " + std::to_string(call));
    }
    EXPECT_GE(both.counts().forward.replays, 12U) << name << "\n" << both.counts().forward.reasons;
    EXPECT_GE(both.counts().backward.replays, 12U) << name << "\n" << both.counts().backward.reasons;
  }
}

TEST_F(TrainingOnGpu, RunsOnTheCurrentStream) {
  const Trained& each = trained("lstm loop");
  ModuleOnBoth both = both_of(gpu_, each);
  DeviceRuntime& runtime = gpu_.runtime();
  for (int call = 0; call < 8; ++call) {
    const CurrentStream other(runtime, call % 2 == 0 ? runtime.current_stream(0) : runtime.side_stream(0));
    both.train(each.arguments(call), "call " + std::to_string(call));
  }
}

}  // namespace
}  // namespace sconce::testing
