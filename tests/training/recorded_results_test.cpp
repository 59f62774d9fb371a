// Recorded calls with several results: hooks, retained gradients and autograd::grad see the gradients that LibTorch shows.
#include "tests/training/recorded_pair.h"

#include <sconce/compiled_backward.h>

#include <ATen/ATen.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/csrc/autograd/autograd.h>

#include <functional>
#include <string>
#include <vector>

namespace sconce::testing {
namespace {

// `c` is computed from nothing else that is returned, `h` from `c`, `y` from both, `z` from none of them.
const char* const kChain = R"(
def forward(self, x):
    c = torch.cummax(torch.linear(x, self.a_weight, self.a_bias), 1)[0]
    h = torch.tanh(c) * 2
    y = torch.linear(h * c.sigmoid() + h, self.b_weight, self.b_bias) * self.scale
    z = torch.linear(torch.cos(x), self.b_weight.t()).sin()[:, :3]
    return y, h, c, z.contiguous()
)";

// The same, where `c` is written row by row before `h` reads it.
const char* const kWritten = R"(
def forward(self, x):
    c = torch.zeros_like(x)
    for i in range(x.size(0)):
        c[i] = torch.cummax(torch.linear(x[i], self.a_weight, self.a_bias), 0)[0]
    h = torch.tanh(c) * 2
    y = torch.linear(h * c.sigmoid() + h, self.b_weight, self.b_bias) * self.scale
    z = torch.linear(torch.cos(x), self.b_weight.t()).sin()[:, :3]
    return y, h, c, z.contiguous()
)";

struct Results {
  at::Tensor y, h, c, z;
};
// Uses the results, and notes gradients that it sees.
using SeeingUse = std::function<void(const Results& results, const at::Tensor& x, std::vector<at::Tensor>& seen)>;

at::Tensor loss_of(const Results& results) {
  return results.y.pow(2).sum() + (results.h * 3).sum() + results.c.pow(3).sum() + results.z.sum();
}

// Returns how many calls ran by a plan.
uint64_t expect_equal_gradients_seen(const SeeingUse& use, const char* source = kChain) {
  RecordedPair pair(source);
  std::vector<std::vector<at::Tensor>> seen;
  expect_equal_uses(pair, [&](const c10::IValue& result, const at::Tensor& x) {
    const auto& elements = result.toTupleRef().elements();
    const Results results = {elements[0].toTensor(), elements[1].toTensor(), elements[2].toTensor(), elements[3].toTensor()};
    use(results, x, seen.emplace_back());
  });
  for (size_t call = 0; call + 1 < seen.size(); call += 2) {
    EXPECT_EQ(seen[call].size(), seen[call + 1].size()) << "call " << call / 2;
    for (size_t i = 0; i < std::min(seen[call].size(), seen[call + 1].size()); ++i) {
      const at::Tensor& ours = seen[call][i];
      const at::Tensor& theirs = seen[call + 1][i];
      EXPECT_EQ(ours.defined(), theirs.defined()) << "call " << call / 2 << ", gradient " << i;
      if (ours.defined() && theirs.defined()) {
        EXPECT_TRUE(at::allclose(ours, theirs, 1e-4, 1e-5)) << "call " << call / 2 << ", gradient " << i;
      }
    }
  }
  return pair.recorded().by_plan;
}

void note_gradients(const at::Tensor& tensor, std::vector<at::Tensor>& seen) {
  tensor.register_hook([&seen](const at::Tensor& gradient) {
    seen.push_back(gradient.clone());
    return gradient * 2;
  });
}

TEST(RecordedResults, AreComputedFromEachOther) {
  const uint64_t by_plan = expect_equal_gradients_seen(
      [](const Results& results, const at::Tensor&, std::vector<at::Tensor>&) { loss_of(results).backward(); });
  EXPECT_GE(by_plan, 4U);
}

TEST(RecordedResults, BringGradientsOfSome) {
  for (const int used : {0, 1, 2, 3}) {
    expect_equal_gradients_seen([used](const Results& results, const at::Tensor&, std::vector<at::Tensor>&) {
      const std::vector<at::Tensor> all = {results.y, results.h, results.c, results.z};
      all[static_cast<size_t>(used)].pow(2).sum().backward();
    });
  }
}

// Zeros in place of the gradient of `y` would become NaN: its derivative is infinite.
TEST(RecordedResults, BringNoZerosToInfiniteDerivatives) {
  const char* const source = R"(
def forward(self, x):
    h = torch.linear(x, self.a_weight, self.a_bias)
    y = torch.sqrt(torch.cumsum(h - h, 1))
    c = torch.linear(torch.cummax(h, 1)[0], self.b_weight, self.b_bias)
    return y, h * 2, c, c.sin()
)";
  for (const bool retains : {false, true}) {
    const uint64_t by_plan = expect_equal_gradients_seen(
        [retains](const Results& results, const at::Tensor&, std::vector<at::Tensor>&) {
          (results.h.sum() + results.c.pow(2).sum()).backward({}, retains);
          if (retains) {
            results.z.sum().backward();
          }
        },
        source);
    EXPECT_GE(by_plan, 4U);
  }
}

// The operator before the write has several results, which share no memory with what it reads.
TEST(RecordedResults, ReachOthersThroughOperatorsInPlace) {
  const char* const source = R"(
def forward(self, x):
    h = torch.linear(x, self.a_weight, self.a_bias)
    y, mean, deviation = torch.native_batch_norm(h, None, None, None, None, True, 0.1, 0.001)
    torch.relu_(y)
    c, where = torch.topk(h, 4, 1)
    c.mul_(2)
    z = torch.linear(torch.cos(x), self.b_weight.t()).sin()
    return y * self.b_weight.sum() + self.b_bias, h, c, z
)";
  for (const bool is_hooked : {false, true}) {
    const uint64_t by_plan = expect_equal_gradients_seen(
        [is_hooked](const Results& results, const at::Tensor&, std::vector<at::Tensor>& seen) {
          results.h.retain_grad();
          if (is_hooked) {
            note_gradients(results.h, seen);
          }
          (results.y.sum() + results.h.mean() + results.c.sum() + results.z.sum()).backward();
          seen.push_back(results.h.grad());
        },
        source);
    EXPECT_GE(by_plan, 4U);
  }
}

// Gates that are parts of one tensor, each written in place, as in LibTorch's LSTM cell.
TEST(RecordedResults, ReachOthersThroughPartsWrittenInPlace) {
  const char* const kGates = R"(
def forward(self, x):
    a, b = torch.unsafe_chunk(torch.linear(x, self.a_weight, self.a_bias), 2, 1)
    a.sigmoid_()
    b.sigmoid_()
    c = a * self.b_bias[:4]
    h = b * torch.sin(torch.cummax(c, 1)[0])
    return h, c
)";
  const char* const kCell = R"(
def forward(self, x):
    w = self.a_weight[:, :4]
    h, c = torch.lstm_cell(x[:, :4], [x[:, 4:6], x[:, 6:]], w, self.b_weight[:, :2], self.a_bias, self.b_bias)
    return h, c
)";
  for (const char* source : {kGates, kCell}) {
    for (const size_t used : {0, 1, 2}) {
      RecordedPair pair(source);
      expect_equal_uses(pair, [&](const c10::IValue& result, const at::Tensor&) {
        const auto& elements = result.toTupleRef().elements();
        const at::Tensor h = elements[0].toTensor();
        const at::Tensor c = elements[1].toTensor();
        (used == 0 ? h.sum() : used == 1 ? c.sum() : h.sum() + c.pow(2).sum()).backward();
      });
      EXPECT_GT(pair.recorded().by_plan, 0U) << source;
    }
  }
}

// LibTorch's GRU cell clones its gates between its writes, for backward alone.
TEST(RecordedResults, AreStepsOfAGruLoopAndItsState) {
  RecordedPair pair(R"(
def forward(self, x):
    h = x[:, 6:]
    logits = []
    values = []
    for t in range(3):
        h = torch.gru_cell(x[:, :6], h * self.scale, self.a_weight[:6, :6], self.a_weight[:6, 6:], self.a_bias[:6],
                           self.a_bias[2:])
        logits.append(torch.cummax(torch.linear(h, self.b_weight[:, :2]), 1)[0])
        values.append(torch.tanh(h).sum(1))
    return torch.stack(logits), torch.stack(values), h
)");
  expect_equal_uses(pair, [&](const c10::IValue& result, const at::Tensor&) {
    const auto& elements = result.toTupleRef().elements();
    (elements[0].toTensor().pow(2).sum() + elements[1].toTensor().sum() + elements[2].toTensor().sin().sum()).backward();
  });
  EXPECT_GE(pair.recorded().by_plan, 4U);
}

TEST(RecordedResults, ShowHooksTheSumOfTheirGradients) {
  for (const int hooked : {1, 2, 3, 4, 5, 6, 7, 8, 15}) {
    const uint64_t by_plan =
        expect_equal_gradients_seen([hooked](const Results& results, const at::Tensor&, std::vector<at::Tensor>& seen) {
          const std::vector<at::Tensor> all = {results.y, results.h, results.c, results.z};
          for (size_t i = 0; i < all.size(); ++i) {
            if ((hooked & 1 << i) != 0) {
              note_gradients(all[i], seen);
            }
          }
          loss_of(results).backward();
        });
    EXPECT_GE(by_plan, 4U);
  }
}

// The hook of a result is not called in a backward that does not come through it.
TEST(RecordedResults, CallNoHooksOfOthers) {
  expect_equal_gradients_seen([](const Results& results, const at::Tensor&, std::vector<at::Tensor>& seen) {
    note_gradients(results.y, seen);
    note_gradients(results.z, seen);
    results.h.retain_grad();
    results.z.retain_grad();
    results.c.pow(2).sum().backward();
    seen.push_back(results.h.grad());
    seen.push_back(results.z.grad());
  });
}

TEST(RecordedResults, RetainTheirGradients) {
  expect_equal_gradients_seen([](const Results& results, const at::Tensor&, std::vector<at::Tensor>& seen) {
    for (const at::Tensor& tensor : {results.y, results.h, results.c, results.z}) {
      tensor.retain_grad();
    }
    (results.y.pow(2).sum() + results.c.sum()).backward();
    for (const at::Tensor& tensor : {results.y, results.h, results.c, results.z}) {
      seen.push_back(tensor.grad());
    }
  });
}

TEST(RecordedResults, AreAskedForGradients) {
  expect_equal_gradients_seen([](const Results& results, const at::Tensor& x, std::vector<at::Tensor>& seen) {
    const at::Tensor loss = loss_of(results);
    for (const std::vector<at::Tensor>& wanted :
         std::vector<std::vector<at::Tensor>>{{results.h}, {results.c, x}, {results.h, results.c}, {x}, {results.y, x}}) {
      const auto found = torch::autograd::grad({loss}, wanted, {}, /*retain_graph=*/true);
      seen.insert(seen.end(), found.begin(), found.end());
    }
    const auto none = torch::autograd::grad({results.c.sum()}, {results.h, results.z, x}, {}, true, false, true);
    seen.insert(seen.end(), none.begin(), none.end());
    loss.backward();
  });
}

TEST(RecordedResults, AreDifferentiatedTwice) {
  expect_equal_gradients_seen([](const Results& results, const at::Tensor& x, std::vector<at::Tensor>& seen) {
    const auto first = torch::autograd::grad({loss_of(results)}, {results.h, x}, {}, true, /*create_graph=*/true);
    seen.insert(seen.end(), first.begin(), first.end());
    (first[0].pow(2).sum() + first[1].pow(2).sum()).backward();
  });
}

// A gradient of y is computed from h and c, too.
TEST(RecordedResults, AreReachedByGradientsOfGradients) {
  const SeeingUse use = [](const Results& results, const at::Tensor& x, std::vector<at::Tensor>& seen) {
    const at::Tensor first =
        torch::autograd::grad({results.y.pow(2).mean() * 0.1}, {x}, {}, true, /*create_graph=*/true).front();
    for (const std::vector<at::Tensor>& wanted :
         std::vector<std::vector<at::Tensor>>{{results.h}, {results.c, x}, {results.h, results.c, results.y, results.z}}) {
      const auto found = torch::autograd::grad({first.pow(2).sum()}, wanted, {}, true, false, /*allow_unused=*/true);
      seen.insert(seen.end(), found.begin(), found.end());
    }
    first.pow(2).sum().backward();
  };
  EXPECT_GE(expect_equal_gradients_seen(use), 4U);
  EXPECT_GE(expect_equal_gradients_seen(use, kWritten), 4U);
}

// What one result alone is computed from has no gradient of second order, if another brings the first.
TEST(RecordedResults, BringNoGradientsOfGradientsToInputsOfOthers) {
  expect_equal_gradients_seen([](const Results& results, const at::Tensor& x, std::vector<at::Tensor>& seen) {
    const auto first = torch::autograd::grad({results.c.pow(2).mean()}, {x}, {}, true, /*create_graph=*/true);
    first[0].pow(2).sum().backward();
    seen.push_back(x.grad());
  });
}

// The program tells two results of one formula apart by their gradients.
TEST(RecordedResults, HaveTheirOwnGradients) {
  const SeeingUse use = [](const Results& results, const at::Tensor&, std::vector<at::Tensor>& seen) {
    note_gradients(results.h, seen);
    results.c.retain_grad();
    loss_of(results).backward();
    seen.push_back(results.c.grad());
  };
  expect_equal_gradients_seen(use, R"(
def forward(self, x):
    c = torch.linear(x, self.a_weight, self.a_bias)
    h = torch.linear(x, self.a_weight, self.a_bias)
    y = torch.linear(x, self.a_weight, self.a_bias)
    z = torch.linear(torch.cos(x), self.b_weight.t(), self.a_bias)
    return y * self.b_weight.sum() * self.b_bias.sum(), h, c, z * y
)");
}

TEST(RecordedResults, ShowHooksGradientsOfGradients) {
  for (const int hooked : {1, 2, 3, 4, 7}) {
    const SeeingUse use = [hooked](const Results& results, const at::Tensor& x, std::vector<at::Tensor>& seen) {
      const std::vector<at::Tensor> all = {results.h, results.c, results.y};
      for (size_t i = 0; i < all.size(); ++i) {
        if ((hooked & 1 << i) != 0) {
          note_gradients(all[i], seen);
        }
      }
      const auto first = torch::autograd::grad({results.y.pow(2).mean() * 0.1 + results.c.pow(2).mean() * 0.1}, {x}, {},
                                               true, /*create_graph=*/true);
      (first[0].pow(2).sum() + results.h.mean()).backward();
    };
    expect_equal_gradients_seen(use);
    expect_equal_gradients_seen(use, kWritten);
  }
}

TEST(RecordedResults, KeepTheGraph) {
  for (const bool has_hooks : {false, true}) {
    expect_equal_gradients_seen([has_hooks](const Results& results, const at::Tensor&, std::vector<at::Tensor>& seen) {
      if (has_hooks) {
        note_gradients(results.h, seen);
      }
      const at::Tensor loss = loss_of(results);
      loss.backward({}, /*retain_graph=*/true);
      loss.backward();
      EXPECT_ANY_THROW(loss.backward());
    });
  }
}

TEST(RecordedResults, AreWrittenByTheProgram) {
  expect_equal_gradients_seen([](const Results& results, const at::Tensor&, std::vector<at::Tensor>& seen) {
    note_gradients(results.z, seen);
    results.z.mul_(2);
    note_gradients(results.z, seen);
    loss_of(results).backward();
  });
}

TEST(RecordedResults, RunInCompiledBackwards) {
  for (const bool has_hooks : {false, true}) {
    expect_equal_gradients_seen([has_hooks](const Results& results, const at::Tensor& x, std::vector<at::Tensor>& seen) {
      static const BackwardCache backwards(Options().compile(CompileMode::kBlocking));
      const CompiledBackward scope(backwards);
      if (has_hooks) {
        note_gradients(results.c, seen);
      }
      const at::Tensor loss = loss_of(results);
      seen.push_back(torch::autograd::grad({loss}, {results.h}, {}, /*retain_graph=*/true)[0]);
      seen.push_back(torch::autograd::grad({loss}, {x}, {}, /*retain_graph=*/true)[0]);
      loss.backward();
    });
  }
}

TEST(RecordedResults, DrawAndWriteOnceMore) {
  const uint64_t by_plan = expect_equal_gradients_seen(
      [](const Results& results, const at::Tensor&, std::vector<at::Tensor>& seen) {
        note_gradients(results.h, seen);
        loss_of(results).backward();
        seen.push_back(at::rand({3}));
      },
      R"(
def forward(self, x):
    c = torch.cummax(torch.linear(x, self.a_weight, self.a_bias), 1)[0]
    h = torch.dropout(c, 0.5, True)
    y = torch.linear(h, self.b_weight, self.b_bias) * self.scale
    return y, h, c, torch.sin(x).clone()
)");
  EXPECT_GE(by_plan, 4U);
}

// Two results have no input in common. A backward of one does not touch the inputs of the other.
TEST(RecordedResults, BringNoGradientsToInputsOfOthers) {
  RecordedPair pair(R"(
def forward(self, x, y):
    a = torch.cummax(torch.linear(x, self.a_weight, self.a_bias), 1)[0]
    return a, torch.cummax(torch.linear(y, self.b_weight, self.b_bias), 1)[0]
)");
  for (int call = 0; call < 12; ++call) {
    pair.clear_gradients();
    std::vector<std::vector<at::Tensor>> gradients;
    for (const bool is_ours : {true, false}) {
      const at::Tensor x = at::full({3, 8}, 0.5 + call).requires_grad_();
      const at::Tensor y = at::full({3, 8}, 1.5 + call).requires_grad_();
      const std::vector<at::Tensor> inputs = {x.sin(), y.cos()};
      const std::vector<c10::IValue> arguments = {inputs[0], inputs[1]};
      const c10::IValue result = is_ours ? pair.ours(arguments) : pair.theirs(arguments);
      const auto& elements = result.toTupleRef().elements();
      const size_t first = call % 2;
      int hooks = 0;
      inputs[1 - first].register_hook([&hooks](const at::Tensor& gradient) {
        ++hooks;
        return gradient.clamp(-1, 1);
      });
      elements[first].toTensor().pow(2).sum().backward();
      EXPECT_EQ(hooks, 0) << "call " << call;
      if (call % 3 == 0) {
        elements[1 - first].toTensor().pow(2).sum().backward();
        EXPECT_EQ(hooks, 1) << "call " << call;
      } else {
        inputs[1 - first].sum().backward();  // of which nothing was freed
      }
      gradients.push_back({x.grad(), y.grad()});
    }
    pair.expect_equal_gradients();
    EXPECT_TRUE(at::allclose(gradients[0][0], gradients[1][0]) && at::allclose(gradients[0][1], gradients[1][1]));
  }
  EXPECT_GE(pair.recorded().by_plan, 8U);
}

// Where a hook has forward run again, a write to a result that backward reads is an error, too.
TEST(RecordedResults, MayNotBeWrittenBeforeBackward) {
  for (const bool has_hook : {false, true}) {
    expect_equal_gradients_seen(
        [has_hook](const Results& results, const at::Tensor&, std::vector<at::Tensor>& seen) {
          if (has_hook) {
            note_gradients(results.c, seen);
          }
          {
            const at::NoGradGuard no_grad;
            results.h.mul_(2);
          }
          EXPECT_ANY_THROW(results.y.sum().backward());
        },
        R"(
def forward(self, x):
    c = torch.cummax(torch.linear(x, self.a_weight, self.a_bias), 1)[0]
    h = torch.tanh(c)
    y = torch.linear(h, self.b_weight, self.b_bias) * self.scale
    return y, h, c, torch.sin(x).clone()
)");
  }
}

// One tensor may be several results.
TEST(RecordedResults, AreReturnedTwice) {
  RecordedPair pair(R"(
def forward(self, x):
    h = torch.cummax(torch.linear(x, self.a_weight, self.a_bias), 1)[0]
    return h, (h, torch.linear(h, self.b_weight, self.b_bias)), [h]
)");
  expect_equal_uses(pair, [](const c10::IValue& result, const at::Tensor&) {
    const auto& elements = result.toTupleRef().elements();
    const at::Tensor h = elements[0].toTensor();
    const auto& both = elements[1].toTupleRef().elements();
    EXPECT_TRUE(h.is_same(both[0].toTensor()));
    EXPECT_TRUE(h.is_same(elements[2].toTensorVector()[0]));
    (h.sum() + both[1].toTensor().pow(2).sum() + both[0].toTensor().pow(2).sum()).backward();
  });
  EXPECT_GE(pair.recorded().by_plan, 4U);
}

// Each state is a result, and all later ones are computed from it.
TEST(RecordedResults, AreAllStatesOfALoop) {
  RecordedPair pair(R"(
def forward(self, x):
    h = torch.zeros_like(x)
    states = []
    for t in range(6):
        h = torch.tanh(torch.linear(x, self.a_weight, self.a_bias) + torch.cummax(torch.linear(h, self.b_weight), 1)[0])
        states.append(h)
    return states, (h > 0).sum()
)");
  const auto use = [](const c10::IValue& result, const at::Tensor& x) {
    const std::vector<at::Tensor> states = result.toTupleRef().elements()[0].toTensorVector();
    states[2].retain_grad();
    (states[5].pow(2).sum() + states[2].sum() + states[0].exp().sum()).backward({}, /*retain_graph=*/true);
    states[3].mean().backward();
    x.mutable_grad() = x.grad() + states[2].grad();
  };
  expect_equal_uses(pair, use);
  EXPECT_GE(pair.recorded().by_plan, 4U);
}

// The script detaches what it goes on to compute with, and what it does not.
TEST(RecordedResults, AreDetachedByTheScript) {
  RecordedPair pair(R"(
def forward(self, x):
    h = torch.cummax(torch.linear(x, self.a_weight, self.a_bias), 1)[0]
    e = torch.linear(h, self.b_weight)
    return e.sum(1), h, e.detach(), torch.sin(h).detach(), torch.cos(e).detach()
)");
  expect_equal_uses(pair, [](const c10::IValue& result, const at::Tensor&) {
    const auto& elements = result.toTupleRef().elements();
    for (size_t i = 2; i < elements.size(); ++i) {
      EXPECT_FALSE(elements[i].toTensor().requires_grad());
      EXPECT_TRUE(elements[i].toTensor().is_leaf());
    }
    (elements[0].toTensor() * elements[2].toTensor().sum(1) + elements[1].toTensor().sum(1)).sum().backward();
  });
  EXPECT_GE(pair.recorded().by_plan, 4U);
}

// As potentials return energies of atoms: detached, beside forces.
TEST(RecordedResults, AreDetachedBesideGradients) {
  RecordedPair pair(R"(
def forward(self, x):
    h = torch.cummax(torch.linear(x, self.a_weight, self.a_bias), 1)[0]
    atoms = torch.linear(torch.tanh(h), self.b_weight).sum(1)
    forces = torch.autograd.grad([atoms.sum()], [x], create_graph=True)[0]
    assert forces is not None
    return atoms.sum(), -forces, atoms.detach()
)");
  expect_equal_uses(pair, [](const c10::IValue& result, const at::Tensor&) {
    const auto& elements = result.toTupleRef().elements();
    EXPECT_FALSE(elements[2].toTensor().requires_grad());
    (elements[0].toTensor() + elements[1].toTensor().pow(2).sum()).backward();
  });
  EXPECT_GE(pair.recorded().by_plan, 4U);
}

// Both heads draw numbers, and read one tensor. The trunk reads a number from it, which is the same in each call.
TEST(RecordedResults, AreHeadsOfOneTrunk) {
  RecordedPair pair(R"(
def forward(self, x):
    h = torch.cummax(torch.linear(x, self.a_weight, self.a_bias), 1)[0]
    h = torch.dropout(h.t().contiguous(), 0.3, True)
    n = (h == h).sum().item()
    a = torch.dropout(torch.linear(h.t(), self.b_weight), 0.5, True) * float(n)
    b = torch.batch_norm(h.t(), None, None, self.mean, self.var, True, 0.1, 1e-5, True)
    return a, torch.dropout(b, 0.5, True) + self.b_bias, h.argmax(0)
)",
                    true);
  for (const int used : {0, 1, 2}) {
    expect_equal_uses(pair, [used](const c10::IValue& result, const at::Tensor&) {
      const auto& elements = result.toTupleRef().elements();
      const at::Tensor a = elements[0].toTensor().pow(2).sum();
      const at::Tensor b = elements[1].toTensor().pow(2).sum();
      (used == 0 ? a : used == 1 ? b : a + b).backward();
    });
  }
  EXPECT_GE(pair.recorded().by_plan, 12U);
}

}  // namespace
}  // namespace sconce::testing
