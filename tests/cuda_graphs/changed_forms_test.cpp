// Operators that change the sizes or strides of an argument or a buffer in place, on the simulated GPU: what LibTorch's
// interpreter leaves behind there, in every call.
#include "tests/cuda_graphs/module_on_both.h"
#include "tests/support/graphs.h"

#include <ATen/ATen.h>
#include <c10/core/GradMode.h>
#include <gtest/gtest.h>
#include <torch/csrc/jit/runtime/graph_executor.h>

#include <sstream>
#include <string>
#include <vector>

namespace sconce::testing {
namespace {

struct FormCase {
  const char* name;
  const char* change;  // of the tensor `t`
  std::vector<int64_t> sizes;
};

void PrintTo(const FormCase& each, std::ostream* out) { *out << each.name; }

const std::vector<FormCase>& form_cases() {
  static const std::vector<FormCase> cases = {
      {"transposes_a_matrix", "t.t_()", {4, 4}},
      {"exchanges_dimensions", "t.transpose_(0, 1)", {4, 6}},
      {"swaps_dimensions", "t.swapdims_(0, 1)", {4, 4}},
      {"adds_a_dimension", "t.unsqueeze_(0)", {3, 4}},
      {"drops_a_dimension", "t.squeeze_(0)", {1, 4}},
      {"shrinks", "t.resize_([2, 2])", {2, 5}},
      {"grows", "t.resize_([4, 5]).fill_(3.0)", {2, 5}},
      {"takes_the_sizes_of_another", "t.resize_as_(x).fill_(3.0)", {2, 2}},
      {"strides_anew", "t.as_strided_([2, 2], [1, 2])", {4, 4}},
      {"takes_the_memory_of_another", "t.set_(x * 2.0)", {4, 4}},
      {"resizes_a_result", "torch.add(x, 1.0, out=t)", {0}},
  };
  return cases;
}

class ChangedForms : public ::testing::TestWithParam<FormCase> {
 protected:
  static std::string form_of(const at::Tensor& tensor) {
    std::ostringstream text;
    text << tensor.sizes() << ", strides " << tensor.strides() << ", offset " << tensor.storage_offset();
    return text.str();
  }

  void expect_equal(const at::Tensor& found, const at::Tensor& expected, const std::string& where) {
    EXPECT_EQ(form_of(found), form_of(expected)) << where;
    EXPECT_TRUE(at::allclose(gpu_.values(found), gpu_.values(expected), 1e-5, 1e-6)) << where;
  }

  // Calls modules of the source on an image, and a tensor that is given or is a buffer.
  void expect_agreement(const std::string& source, bool is_buffer) {
    const FormCase& each = GetParam();
    const at::NoGradGuard no_grad;
    const Attributes attributes = is_buffer ? Attributes{{"t", at::randn(each.sizes)}} : Attributes{};
    torch::jit::Module theirs = copy_on_gpu(module_of(source, attributes));
    torch::jit::Module copy = theirs.deepcopy();
    const Module ours = accelerate(copy, Options().compile(CompileMode::kBlocking));
    for (int call = 1; call <= 6; ++call) {
      const std::string where = "call " + std::to_string(call);
      const at::Tensor x = at::randn({4, 4});
      const at::Tensor t = at::randn(each.sizes);
      std::vector<c10::IValue> given = {gpu_.tensor(x)};
      std::vector<c10::IValue> given_theirs = {gpu_.tensor(x)};
      if (is_buffer) {
        copy.setattr("t", gpu_.tensor(t));
        theirs.setattr("t", gpu_.tensor(t));
      } else {
        given.emplace_back(gpu_.tensor(t));
        given_theirs.emplace_back(gpu_.tensor(t));
      }
      torch::jit::setGraphExecutorOptimize(false);
      const at::Tensor expected = theirs.forward(given_theirs).toTensor();
      torch::jit::setGraphExecutorOptimize(true);
      const at::Tensor found = ours.forward(given).toTensor();
      gpu_.runtime().synchronize(0);
      expect_equal(found, expected, where);
      expect_equal(is_buffer ? copy.attr("t").toTensor() : given[1].toTensor(),
                   is_buffer ? theirs.attr("t").toTensor() : given_theirs[1].toTensor(), where);
    }
    EXPECT_TRUE(gpu_.driver().misuse().empty());
  }

  SimulatedGpu gpu_;
};

TEST_P(ChangedForms, OfAnArgument) {
  expect_agreement("def forward(self, x, t):\n    y = torch.relu(x) * 2.0\n    " + std::string(GetParam().change) +
                       "\n    t.add_(1.0)\n    return torch.tanh(y) + t.sum()\n",
                   /*is_buffer=*/false);
}

TEST_P(ChangedForms, OfABuffer) {
  expect_agreement("def forward(self, x):\n    t = self.t\n    y = torch.relu(x) * 2.0\n    " +
                       std::string(GetParam().change) + "\n    t.add_(1.0)\n    return torch.tanh(y) + t.sum()\n",
                   /*is_buffer=*/true);
}

INSTANTIATE_TEST_SUITE_P(Operators, ChangedForms, ::testing::ValuesIn(form_cases()),
                         [](const auto& each) { return std::string(each.param.name); });

}  // namespace
}  // namespace sconce::testing
