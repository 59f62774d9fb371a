// Values that all rows of a kernel share are computed once, before the rows.
#include "tests/support/graphs.h"

#include "fusion/cpu/kernel_cache.h"
#include "fusion/program/cost_model.h"
#include "fusion/program/program_builder.h"
#include "fusion/program/shared_values.h"

#include <sconce/sconce.h>

#include <ATen/ATen.h>
#include <c10/core/GradMode.h>
#include <gtest/gtest.h>
#include <torch/csrc/jit/api/module.h>

#include <algorithm>
#include <string>
#include <utility>
#include <vector>

namespace sconce::testing {
namespace {

// x / sqrt(v + 1) - v, where v has one element for each column.
struct Example {
  KernelProgram program;
  Iteration iteration;

  explicit Example(int64_t rows) {
    ProgramBuilder builder;
    const Element x = builder.load(0, at::kFloat);
    const Element v = builder.load(1, at::kFloat);
    const Element one = builder.literal(1, at::kFloat);
    const Element root = builder.apply(MachineOp::kSqrt, builder.apply(MachineOp::kAdd, v, one));
    const Element result = builder.apply(MachineOp::kSub, builder.apply(MachineOp::kDiv, x, root), v);
    program.inputs = {{at::kFloat, Access::kElements}, {at::kFloat, Access::kElements}};
    program.outputs = {{at::kFloat, result.id}};
    program.code = builder.take();
    iteration.sizes = {rows, 40};
    iteration.strides = {{160, 4}, {0, 4}, {160, 4}};
    iteration.segment_strides = {0, 0, 0};
  }
};

TEST(SharedValues, AreComputedBeforeTheRows) {
  const Example example(cost_model::kMinRowsToShare);
  const auto of_all_rows = inputs_of_all_rows(example.program, example.iteration);
  ASSERT_EQ(of_all_rows, (std::vector<bool>{false, true}));
  const auto split = split_shared_values(example.program, of_all_rows);
  ASSERT_TRUE(split.has_value());
  EXPECT_EQ(split->inputs_before, std::vector<size_t>{1});
  EXPECT_EQ(split->inputs_of_rows, (std::vector<size_t>{0, 1}));
  EXPECT_EQ(split->before.text(),
            "input 0: Float elements\noutput 0: Float = %3\n  %0 = load.Float 0\n  %1 = literal.Float 1\n"
            "  %2 = add.Float %0 %1\n  %3 = sqrt.Float %2\n");
  EXPECT_EQ(
      split->rows.text(),
      "input 0: Float elements\ninput 1: Float elements\ninput 2: Float elements\noutput 0: Float = %4\n"
      "  %0 = load.Float 0\n  %1 = load.Float 2\n  %2 = div.Float %0 %1\n  %3 = load.Float 1\n  %4 = sub.Float %2 %3\n");
  const Iteration rows = iteration_of_rows(*split, example.iteration);
  EXPECT_EQ(rows.strides, (std::vector<std::vector<int64_t>>{{160, 4}, {0, 4}, {0, 4}, {160, 4}}));
  const Iteration before = iteration_before(*split, example.iteration);
  EXPECT_EQ(before.sizes, (std::vector<int64_t>{1, 40}));
  EXPECT_EQ(before.strides, (std::vector<std::vector<int64_t>>{{0, 4}, {0, 4}}));
}

TEST(SharedValues, AreNotTakenOfFewRows) {
  const Example example(cost_model::kMinRowsToShare - 1);
  EXPECT_TRUE(inputs_of_all_rows(example.program, example.iteration).empty());
}

std::string forward_of(const std::string& expression) {
  return "def forward(self, x: Tensor, s: float):\n    return " + expression + "\n";
}

void expect_like_eager(const std::string& expression, const std::vector<std::pair<std::string, c10::IValue>>& attributes,
                       const std::vector<at::Tensor>& inputs, double tolerance = 1e-5) {
  const at::NoGradGuard no_grad;
  const torch::jit::Module reference = module_of(forward_of(expression), attributes);
  Module ours = accelerate(reference.deepcopy(), Options().compile(CompileMode::kBlocking));
  double number = 0.5;
  for (const at::Tensor& x : inputs) {
    for (int call = 0; call < 3; ++call, number += 0.25) {
      const c10::IValue expected = reference.get_method("forward")({x, number});
      EXPECT_TRUE(agree(ours.forward({x, number}), expected, tolerance)) << expression << "\nsizes " << x.sizes();
    }
  }
}

TEST(SharedValues, OfVectorsBesideMatrices) {
  at::manual_seed(1);
  const std::vector<std::pair<std::string, c10::IValue>> attributes = {
      {"v", at::rand({37}) + 0.5},
      {"w", at::randn({1, 37})},
      {"d", at::rand({37}, at::kDouble) + 0.5},
      {"n", at::arange(37)},
      {"h", at::randn({37}).to(at::kBFloat16)},
      {"c", at::rand({3, 1, 37}) + 0.5},
  };
  std::vector<at::Tensor> inputs;
  for (const int64_t rows : {30, 3, 8, 1, 300, 0, 12}) {  // with and without shared values, one after the other
    inputs.push_back(at::randn({rows, 37}));
  }
  inputs.push_back(at::randn({37, 20}).t());
  inputs.push_back(at::randn({20, 74}).slice(1, 0, 74, 2));
  for (const char* expression : {
           "x / torch.sqrt(self.v + s) * self.w",
           "x * torch.exp(self.w) + torch.sigmoid(self.v) / s",
           "torch.where(self.n > 5, x, torch.exp(self.w) / s) - x",
           "x * torch.tanh(self.h) - torch.exp(self.w * s)",
           "(x, torch.exp(self.w) * x, torch.rsqrt(self.v) + x * 0.0)",
           "torch.to(x * torch.exp(self.n * 0.1), 7) / torch.sqrt(self.d)",
           "torch.exp(self.w * s) + torch.zeros_like(x)",
       }) {
    expect_like_eager(expression, attributes, inputs);
  }
  expect_like_eager("x / torch.sqrt(self.c + s) - torch.exp(self.v)", attributes,
                    {at::randn({3, 20, 37}), at::randn({3, 9, 37})});
}

TEST(SharedValues, OfBatchNorms) {
  at::manual_seed(2);
  const std::vector<std::pair<std::string, c10::IValue>> attributes = {
      {"w", at::randn({19})}, {"b", at::randn({19})}, {"mean", at::randn({19})}, {"var", at::rand({19}) + 0.5}};
  const auto last = at::MemoryFormat::ChannelsLast;
  const std::vector<at::Tensor> inputs = {at::randn({2, 19, 7, 5}).contiguous(last),
                                          at::randn({1, 19, 2, 2}).contiguous(last), at::randn({2, 19, 7, 5}),
                                          at::randn({50, 19})};
  for (const char* expression : {
           "torch.relu(torch.batch_norm(x, self.w, self.b, self.mean, self.var, False, 0.1, 1e-5, True))",
           "torch.batch_norm(x, None, self.b, self.mean, self.var, False, 0.1, 1e-3, True) * s",
           "torch.sigmoid(torch.batch_norm(x, self.w, None, self.mean, self.var, False, 0.1, 1e-3, True)) * x",
       }) {
    expect_like_eager(expression, attributes, inputs);
  }
  // The parameters count as they are in each call.
  const at::NoGradGuard no_grad;
  torch::jit::Module reference = module_of(
      forward_of("torch.relu(torch.batch_norm(x, self.w, self.b, self.mean, self.var, False, 0.1, 1e-5, True)) + s"),
      attributes);
  Module ours = accelerate(reference, Options().compile(CompileMode::kBlocking));
  for (int call = 0; call < 4; ++call) {
    reference.attr("var").toTensor().data_ptr<float>()[call] += 1;
    EXPECT_TRUE(agree(ours.forward({inputs[0], 1.0}), reference.get_method("forward")({inputs[0], 1.0}), 1e-5));
  }
  // A kernel of its own computes the factor and the summand of each channel.
  const auto kernels = KernelCache::instance().kernels();
  EXPECT_TRUE(std::any_of(kernels.begin(), kernels.end(), [](const auto& kernel) {
    const auto groups = kernel->groups();
    return std::find(groups.begin(), groups.end(), "batch_norm relu add") != groups.end() &&
           kernel->program().inputs.size() == 4 && kernel->program().outputs.size() == 2;
  }));
}

}  // namespace
}  // namespace sconce::testing
