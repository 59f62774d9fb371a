// Steps of modules that change lists, dicts or the sizes of what they are given: the caller's objects, and the losses of the
// next calls, are those of LibTorch's own loop.
#include "tests/training/two_trainings.h"

#include <ATen/ATen.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <functional>
#include <string>

namespace sconce::testing {
namespace {

struct CarriedCase {
  const char* name;
  const char* parameter;
  const char* change;
  const char* read;  // a number or a tensor of three elements
  std::function<c10::IValue()> make;
  bool is_recorded = false;
};

void PrintTo(const CarriedCase& each, std::ostream* out) { *out << each.name; }

c10::IValue list_of_tensors() { return c10::List<at::Tensor>({at::ones({3})}); }
c10::IValue dict_of_tensors() {
  c10::Dict<std::string, at::Tensor> dict;
  dict.insert("s", at::ones({3}));
  return dict;
}
c10::IValue list_of_lists() {
  c10::List<c10::List<int64_t>> lists;
  lists.push_back(c10::List<int64_t>({2}));
  return lists;
}

const std::vector<CarriedCase>& carried_cases() {
  static const std::vector<CarriedCase> cases = {
      {"appends", "List[Tensor]", "s.append(y.detach() * 0.5)", "s[-1]", list_of_tensors},
      {"sets_an_element", "List[Tensor]", "s[0] = y.detach() * 0.5", "s[0]", list_of_tensors},
      {"counts", "List[int]", "s[0] = s[0] + 1", "s[0]", [] { return c10::List<int64_t>({2}); }},
      {"sets_an_entry", "Dict[str, Tensor]", "s['s'] = y.detach() * 0.5", "s['s']", dict_of_tensors},
      {"counts_within", "List[List[int]]", "s[0][0] = s[0][0] + 1", "s[0][0]", list_of_lists},
      {"adds_a_dimension", "Tensor", "s.unsqueeze_(0)", "s.sum()", [] { return at::ones({3}); }},
      {"writes_an_element", "List[Tensor]", "s[0].mul_(0.5)", "s[0]", list_of_tensors, /*is_recorded=*/true},
      {"reads", "Dict[str, Tensor]", "z = s['s'] + 1", "s['s']", dict_of_tensors, /*is_recorded=*/true},
  };
  return cases;
}

class ChangedArguments : public ::testing::TestWithParam<CarriedCase> {};

TEST_P(ChangedArguments, AreTheCallersOwn) {
  const CarriedCase& each = GetParam();
  const std::string source = "def forward(self, x, s: " + std::string(each.parameter) + "):\n    y = x * self.w + " +
                             each.read + "\n    " + each.change + "\n    return y\n";
  torch::jit::Module ours = module_of(source, {{"w", at::randn({3}).set_requires_grad(true)}});
  torch::jit::Module theirs = copy_of(ours);
  const auto our_optimizer = sgd(parameters_of(ours));
  const auto their_optimizer = sgd(parameters_of(theirs));
  const TrainStep::Loss loss = [](const at::Tensor& y, const at::Tensor& target) { return at::mse_loss(y, target); };
  TrainStep step(accelerate(ours, Options().compile(CompileMode::kBlocking)), loss, *our_optimizer);
  const c10::IValue our_state = each.make();
  const c10::IValue their_state = each.make();
  for (int call = 1; call <= 6; ++call) {
    const at::Tensor x = at::randn({3});
    their_optimizer->zero_grad();
    const at::Tensor expected = loss(theirs.forward({x, their_state}).toTensor(), x);
    expected.backward();
    their_optimizer->step();
    const at::Tensor found = step({x, our_state}, {x});
    EXPECT_TRUE(at::allclose(found, expected.detach(), 1e-5, 1e-6)) << "call " << call << ": " << found << expected;
    if (our_state.isList()) {
      EXPECT_EQ(our_state.toListRef().size(), their_state.toListRef().size()) << "call " << call;
    }
    if (our_state.isTensor()) {
      EXPECT_EQ(our_state.toTensor().sizes(), their_state.toTensor().sizes()) << "call " << call;
    }
  }
  EXPECT_EQ(step.explain().by_plan > 0, each.is_recorded);
}

INSTANTIATE_TEST_SUITE_P(Modules, ChangedArguments, ::testing::ValuesIn(carried_cases()),
                         [](const auto& each) { return std::string(each.param.name); });

}  // namespace
}  // namespace sconce::testing
