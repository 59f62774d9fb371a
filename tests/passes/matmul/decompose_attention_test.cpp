#include "passes/matmul/decompose_attention.h"

#include "load/compile_op_row.h"
#include "lower/lower.h"
#include "passes/required/eliminate_dead_nodes.h"
#include "plan/run_plan.h"

#include "tests/support/graphs.h"

#include <ATen/ATen.h>
#include <c10/core/GradMode.h>
#include <gtest/gtest.h>

#include <limits>
#include <string>
#include <vector>

namespace sconce {
namespace {

const char* const kAttention = R"(
def f(x: Tensor, qw: Tensor, qb: Tensor, pw: Tensor, pb: Tensor):
    return torch._native_multi_head_attention(x, x, x, WIDTH, HEADS, qw, qb, pw, pb, MASK, WEIGHTS, True)[0]
)";
const char* const kLayer = R"(
def f(x: Tensor, qw: Tensor, qb: Tensor, pw: Tensor, pb: Tensor, n1: Tensor, b1: Tensor, n2: Tensor, b2: Tensor, uw: Tensor,
      ub: Tensor, dw: Tensor, db: Tensor):
    return torch._transformer_encoder_layer_fwd(x, WIDTH, HEADS, qw, qb, pw, pb, GELU, FIRST, 1e-5, n1, b1, n2, b2, uw, ub, dw,
                                                db)
)";

std::string with(std::string text, const std::vector<std::pair<std::string, std::string>>& settings) {
  for (const auto& [name, value] : settings) {
    text.replace(text.find(name), name.size(), value);
  }
  return text;
}

// Returns the graph of the text, of which the ranks of these arguments are known.
std::unique_ptr<Graph> graph_of(const std::string& text, const std::vector<at::Tensor>& arguments) {
  auto graph = compile_function("attention", text);
  for (size_t i = 0; i < arguments.size(); ++i) {
    TensorFacts facts = facts_of(arguments[i]);
    facts.sizes->assign(facts.sizes->size(), Dim::unknown());
    facts.strides.reset();
    graph->inputs()[i]->set_facts(facts);
  }
  return graph;
}

at::Tensor result_of(std::unique_ptr<Graph> graph, const std::vector<at::Tensor>& arguments) {
  torch::jit::Stack stack(arguments.begin(), arguments.end());
  const auto plan = lower(std::move(graph));
  EXPECT_TRUE(plan) << plan.refusal().reason;
  run_plan(**plan, stack, AutogradUse::kNone);
  return stack.at(0).toTensor();
}

std::string error_of(std::unique_ptr<Graph> graph, const std::vector<at::Tensor>& arguments) {
  try {
    result_of(std::move(graph), arguments);
  } catch (const std::exception& error) {
    const std::string message = error.what();
    return message.substr(0, message.find(" (in "));
  }
  return "none";
}

std::vector<at::Tensor> arguments_of(int64_t batch, int64_t steps, int64_t width, int64_t inner = 0) {
  std::vector<at::Tensor> all = {at::randn({batch, steps, width}), at::randn({3 * width, width}) * 0.2,
                                 at::randn({3 * width}), at::randn({width, width}), at::randn({width})};
  if (inner > 0) {
    const std::vector<at::Tensor> rest = {at::randn({width}),        at::randn({width}),        at::randn({width}),
                                          at::randn({width}),        at::randn({inner, width}), at::randn({inner}),
                                          at::randn({width, inner}), at::randn({width})};
    all.insert(all.end(), rest.begin(), rest.end());
  }
  return all;
}

void expect_equal(const std::string& text, const std::vector<at::Tensor>& arguments) {
  auto decomposed = graph_of(text, arguments);
  ASSERT_TRUE(decompose_attention(*decomposed)) << text;
  EXPECT_FALSE(decompose_attention(*decomposed)) << "what is left to the operator stays";
  const at::Tensor expected = result_of(graph_of(text, arguments), arguments);
  const at::Tensor got = result_of(std::move(decomposed), arguments);
  EXPECT_TRUE(at::allclose(got, expected, 1e-4, 1e-4, /*equal_nan=*/true)) << text << (got - expected).abs().max();
  EXPECT_EQ(got.strides(), expected.strides()) << text;
}

const std::vector<std::vector<int64_t>> kSizes = {{1, 1, 8}, {2, 7, 8}, {3, 64, 16}, {2, 65, 16}, {1, 130, 24}};

TEST(DecomposeAttention, ComputesWhatLibTorchComputes) {
  const at::NoGradGuard no_grad;
  at::manual_seed(3);
  for (const auto& sizes : kSizes) {
    for (const char* heads : {"1", "4"}) {
      const std::string width = std::to_string(sizes[2]);
      expect_equal(with(kAttention, {{"WIDTH", width}, {"HEADS", heads}, {"MASK", "None"}, {"WEIGHTS", "False"}}),
                   arguments_of(sizes[0], sizes[1], sizes[2]));
      for (const char* gelu : {"True", "False"}) {
        for (const char* first : {"True", "False"}) {
          expect_equal(with(kLayer, {{"WIDTH", width}, {"HEADS", heads}, {"GELU", gelu}, {"FIRST", first}}),
                       arguments_of(sizes[0], sizes[1], sizes[2], 20));
        }
      }
    }
  }
}

const char* const kMaskedAttention = R"(
def f(x: Tensor, qw: Tensor, qb: Tensor, pw: Tensor, pb: Tensor, mask: Tensor):
    return torch._native_multi_head_attention(x, x, x, WIDTH, HEADS, qw, qb, pw, pb, mask, False, True, TYPE)[0]
)";
const char* const kMaskedLayer = R"(
def f(x: Tensor, qw: Tensor, qb: Tensor, pw: Tensor, pb: Tensor, n1: Tensor, b1: Tensor, n2: Tensor, b2: Tensor, uw: Tensor,
      ub: Tensor, dw: Tensor, db: Tensor, mask: Tensor):
    return torch._transformer_encoder_layer_fwd(x, WIDTH, HEADS, qw, qb, pw, pb, True, True, 1e-5, n1, b1, n2, b2, uw, ub, dw,
                                                db, mask, TYPE)
)";

// A mask of this type that hides about a third, and all steps of the first sequence.
at::Tensor mask_of(int64_t type, const std::vector<int64_t>& sizes, int64_t heads) {
  const std::vector<std::vector<int64_t>> all = {
      {sizes[1], sizes[1]}, {sizes[0], sizes[1]}, {sizes[0], heads, sizes[1], sizes[1]}};
  at::Tensor mask = at::rand(all[static_cast<size_t>(type)]) < 0.3;
  mask.select(0, 0).fill_(type == 1 && sizes[1] > 5);
  return mask;
}

TEST(DecomposeAttention, HidesWhatMasksHide) {
  const at::NoGradGuard no_grad;
  at::manual_seed(5);
  for (const auto& sizes : kSizes) {
    const std::string width = std::to_string(sizes[2]);
    for (int64_t type = 0; type < 3; ++type) {
      const at::Tensor mask = mask_of(type, sizes, 4);
      const at::Tensor numbers = at::zeros(mask.sizes()).masked_fill(mask, -std::numeric_limits<double>::infinity());
      for (const at::Tensor& each : {mask, numbers}) {
        for (const int64_t inner : {0, 20}) {
          std::vector<at::Tensor> arguments = arguments_of(sizes[0], sizes[1], sizes[2], inner);
          arguments.push_back(each);
          expect_equal(with(inner == 0 ? kMaskedAttention : kMaskedLayer,
                            {{"WIDTH", width}, {"HEADS", "4"}, {"TYPE", std::to_string(type)}}),
                       arguments);
        }
      }
    }
  }
}

TEST(DecomposeAttention, LeavesMasksOfOtherSizesToTheOperator) {
  const at::NoGradGuard no_grad;
  for (const char* type : {"0", "1", "2", "3", "None"}) {
    const std::string text = with(kMaskedAttention, {{"WIDTH", "8"}, {"HEADS", "2"}, {"TYPE", type}});
    std::vector<at::Tensor> arguments = arguments_of(2, 7, 8);
    arguments.push_back(at::zeros({5, 6}, at::kBool));
    auto decomposed = graph_of(text, arguments);
    ASSERT_TRUE(decompose_attention(*decomposed));
    const std::string expected = error_of(graph_of(text, arguments), arguments);
    EXPECT_NE(expected, "none");
    EXPECT_EQ(error_of(std::move(decomposed), arguments), expected);
  }
}

TEST(DecomposeAttention, LeavesErrorsToTheOperator) {
  const at::NoGradGuard no_grad;
  const auto text = [](const char* width, const char* heads) {
    return with(kLayer, {{"WIDTH", width}, {"HEADS", heads}, {"GELU", "True"}, {"FIRST", "True"}});
  };
  const auto expect_same = [](const std::string& of, const std::vector<at::Tensor>& arguments) {
    auto decomposed = graph_of(of, arguments);
    ASSERT_TRUE(decompose_attention(*decomposed));
    const std::string expected = error_of(graph_of(of, arguments), arguments);
    EXPECT_NE(expected, "none");
    EXPECT_EQ(error_of(std::move(decomposed), arguments), expected);
  };
  expect_same(text("8", "3"), arguments_of(2, 5, 8, 20));
  expect_same(text("16", "2"), arguments_of(2, 5, 8, 20));
  for (size_t wrong = 1; wrong < 13; ++wrong) {
    std::vector<at::Tensor> arguments = arguments_of(2, 5, 8, 20);
    at::Tensor& operand = arguments[wrong];
    operand = operand.dim() == 1 ? at::randn({operand.size(0) + 1}) : at::randn({operand.size(0) + 1, operand.size(1) + 1});
    expect_same(text("8", "2"), arguments);
  }
}

TEST(DecomposeAttention, LeavesWhatItDoesNotServe) {
  const std::vector<at::Tensor> arguments = arguments_of(2, 5, 8);
  const auto is_left = [&](const std::string& text, const std::vector<at::Tensor>& given) {
    auto graph = graph_of(text, given);
    eliminate_dead_nodes(*graph);
    return !decompose_attention(*graph);
  };
  const std::string plain = with(kAttention, {{"WIDTH", "8"}, {"HEADS", "2"}, {"MASK", "None"}, {"WEIGHTS", "False"}});
  EXPECT_FALSE(is_left(plain, arguments));
  EXPECT_TRUE(is_left(with(plain, {{"x, x, x", "x, pw, x"}}), arguments));
  EXPECT_TRUE(is_left(with(plain, {{"[0]", "[1]"}}), arguments)) << "the weights of attention are read";
  std::vector<at::Tensor> doubles;
  for (const at::Tensor& argument : arguments) {
    doubles.push_back(argument.to(at::kDouble));
  }
  EXPECT_TRUE(is_left(plain, doubles));
}

}  // namespace
}  // namespace sconce
