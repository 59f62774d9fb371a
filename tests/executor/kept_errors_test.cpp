// Errors of operators of which a method reads sizes and dtypes alone: facts know these, and LibTorch raises all the same.
#include "tests/support/graphs.h"

#include <sconce/sconce.h>

#include <ATen/ATen.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/csrc/jit/runtime/graph_executor.h>

#include <string>
#include <vector>

namespace sconce::testing {
namespace {

using ::testing::HasSubstr;
using Arguments = std::vector<c10::IValue>;

struct RaisingProgram {
  const char* result;
  Arguments good, bad;
};

std::vector<RaisingProgram> raising_programs() {
  const at::Tensor rows = at::arange(12, at::kFloat).view({3, 4});
  const at::Tensor none = at::zeros({0});
  const at::Tensor places = at::tensor({0, 2}, at::kLong);
  const at::Tensor outside = at::tensor({0, 7}, at::kLong);
  const at::Tensor square = at::eye(3);
  return {
      {"x.max().numel()", {rows, places}, {none, places}},
      {"(x.min() * 2 + 1).dim()", {rows, places}, {none, places}},
      {"x.argmax().dtype", {rows, places}, {none, places}},
      {"3 if x.amax().dim() == 0 else 4", {rows, places}, {none, places}},
      {"torch.embedding(x, i).size(1)", {rows, places}, {rows, outside}},
      {"x.index_select(0, i).tanh().size(0) + 1", {rows, places}, {rows, outside}},
      {"x[i].dim()", {rows, places}, {rows, outside}},
      {"torch.gather(x, 1, i.view(2, 1)).numel()", {rows, places}, {rows, outside}},
      {"torch.zeros([2, 5]).scatter_add(1, i.view(2, 1), x[:2, :1]).size(0)", {rows, places}, {rows, outside}},
      {"torch.linalg_cholesky(x).size(0)", {square, places}, {-square, places}},
      {"torch.one_hot(i, 3).size(1)", {rows, places}, {rows, outside}},
      {"torch.nll_loss(x[:2], i).dim()", {rows, places}, {rows, outside}},
      {"x.expand([2, 3, 4]).numel()", {rows, places}, {square, places}},
      {"x.as_strided([3, 2], [4, 1], 0).size(0)", {rows, places}, {none, places}},
      {"torch.mm(x, torch.ones([4, 2])).dtype", {rows, places}, {square, places}},
      {"torch.cat([x, torch.ones([1, 4])]).dim()", {rows, places}, {square, places}},
      {"torch.conv1d(x.view(1, 3, -1), torch.ones([2, 3, 1])).size(1)", {rows, places}, {none, places}},
      {"torch.stack([x, torch.ones([3, 4])]).numel()", {rows, places}, {square, places}},
      {"x.view([4, 3]).transpose(0, 1).dim()", {rows, places}, {square, places}},
      {"x.new_zeros([torch.embedding(x, i).size(0)])", {rows, places}, {rows, outside}},
  };
}

// Returns LibTorch's words for the call of its interpreter.
std::string words_of(const std::string& source, const Arguments& arguments) {
  const torch::jit::GraphOptimizerEnabledGuard unoptimized(false);
  const std::string text = message_of([&] { module_of(source).forward(arguments); });
  const std::string kBefore = "RuntimeError: ";
  const size_t begin = text.find(kBefore) + kBefore.size();
  return text.substr(begin, text.find('\n', begin) - begin);
}

class KeptErrors : public ::testing::TestWithParam<CompileMode> {};

TEST_P(KeptErrors, AreThoseOfEveryCall) {
  for (const RaisingProgram& program : raising_programs()) {
    const std::string source = std::string("def forward(self, x, i):\n    return ") + program.result + "\n";
    const std::string words = words_of(source, program.bad);
    SCOPED_TRACE(program.result + ("\n" + words));
    Module module = accelerate(module_of(source), Options().compile(GetParam()));
    for (const int round : {0, 1, 2}) {
      for (int call = 0; call < 4; ++call) {
        EXPECT_THAT(message_of([&] { module.forward(program.bad); }), HasSubstr(words)) << "round " << round;
      }
      for (int call = 0; call < 4; ++call) {
        EXPECT_NO_THROW(module.forward(program.good)) << "round " << round;
      }
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Modes, KeptErrors, ::testing::Values(CompileMode::kBlocking, CompileMode::kBackground));

}  // namespace
}  // namespace sconce::testing
