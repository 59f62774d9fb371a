// Packed weights: the results of the operators, whatever becomes of the weights between two runs.
#include "tests/support/both_plans.h"

#include "kernels/packed/packed_weights.h"

#include <ATen/ATen.h>
#include <ATen/Parallel.h>
#include <c10/core/GradMode.h>
#include <c10/core/InferenceMode.h>

#include <array>
#include <cmath>
#include <limits>
#include <thread>
#include <vector>

namespace sconce {
namespace {

using testing::agree;
using testing::Both;

constexpr int kRuns = 5;  // the weights are packed in the third
constexpr double kTolerance = 1e-4;

const char* const kLinear = R"(graph(%x : Tensor, %w : Tensor, %b : Tensor?):
  %y : Tensor = aten::linear(%x, %w, %b)
  return (%y)
)";
const char* const kAddmm = R"(graph(%x : Tensor, %w : Tensor, %b : Tensor):
  %one : int = prim::Constant[value=1]()
  %y : Tensor = aten::addmm(%b, %x, %w, %one, %one)
  return (%y)
)";
const char* const kMatmul = R"(graph(%x : Tensor, %w : Tensor):
  %y : Tensor = aten::matmul(%x, %w)
  return (%y)
)";

std::string convolution(const std::string& stride, const std::string& padding, const std::string& dilation, int64_t groups,
                        const std::string& op = "conv2d") {
  const bool is_general = op == "convolution";
  return "graph(%x : Tensor, %w : Tensor, %b : Tensor?):\n"
         "  %stride : int[] = prim::Constant[value=[" +
         stride +
         "]]()\n"
         "  %padding : int[] = prim::Constant[value=[" +
         padding +
         "]]()\n"
         "  %dilation : int[] = prim::Constant[value=[" +
         dilation +
         "]]()\n"
         "  %groups : int = prim::Constant[value=" +
         std::to_string(groups) +
         "]()\n"
         "  %false : bool = prim::Constant[value=0]()\n"
         "  %y : Tensor = aten::" +
         op + "(%x, %w, %b, %stride, %padding, %dilation, " + (is_general ? "%false, %padding, " : "") +
         "%groups)\n"
         "  return (%y)\n";
}

at::Tensor image(c10::IntArrayRef sizes) { return at::randn(sizes).contiguous(at::MemoryFormat::ChannelsLast); }

// Runs often enough to pack the weights. The results must be new tensors with the operator's strides.
void expect_equal_runs(Both& both, const torch::jit::Stack& arguments) {
  for (int run = 0; run < kRuns; ++run) {
    both.expect_equal(arguments, kTolerance);
    EXPECT_EQ(both.run(arguments)[0].toTensor().strides(), both.run_ordinary(arguments)[0].toTensor().strides());
  }
}

TEST(PackedWeights, ServeProductsOfAllForms) {
  const at::NoGradGuard no_grad;
  for (const int64_t m : {1, 2, 7, 40}) {
    for (const auto& [n, k] : {std::pair<int64_t, int64_t>{1, 5}, {5, 1}, {16, 16}, {33, 47}, {300, 70}}) {
      Both linear(kLinear, /*is_exact=*/false);
      expect_equal_runs(linear, {at::randn({m, k}), at::randn({n, k}), at::randn({n})});
      Both without_bias(kLinear, false);
      expect_equal_runs(without_bias, {at::randn({2, m, k}), at::randn({n, k}), c10::IValue()});
      Both of_columns(kLinear, false);
      expect_equal_runs(of_columns, {at::randn({m, k}), at::randn({k, n}).t(), at::randn({n})});
      Both addmm(kAddmm, false);
      expect_equal_runs(addmm, {at::randn({m, k}), at::randn({k, n}), at::randn({n})});
      Both matmul(kMatmul, false);
      expect_equal_runs(matmul, {
                                    at::randn({m, k}),
                                    at::randn({k, n}),
                                });
      expect_equal_runs(matmul, {at::randn({m, k + 3}).slice(1, 1, k + 1), at::randn({k, n})});
    }
  }
}

// Rows at even distances are read in place; others are copied, or are left to the operator.
TEST(PackedWeights, ServeRowsOfAllLayouts) {
  const at::NoGradGuard no_grad;
  const auto made = [](c10::IntArrayRef sizes) { return at::randn(sizes); };
  const std::vector<at::Tensor> inputs = {made({3, 8, 5}).transpose(1, 2),                  // transposed matrices
                                          made({3, 10, 5}).transpose(1, 2).slice(2, 1, 9),  // the same, with gaps
                                          made({3, 5, 16}).slice(2, 4, 12),                 // rows with gaps
                                          made({3, 9, 8}).slice(1, 0, 5),                   // the same, in batches with gaps
                                          made({5, 3, 8}).transpose(0, 1),                  // batches among the rows
                                          made({3, 5, 8}).select(1, 2),                     // one row of each batch
                                          made({2, 3, 8, 5}).permute({1, 0, 3, 2}),
                                          made({2, 8, 3, 5}).permute({0, 2, 3, 1}),
                                          made({1, 1, 8}).expand({3, 5, 8}),
                                          made({20}).unfold(0, 8, 1),  // rows that overlap
                                          made({3, 5, 1}).expand({3, 5, 8}),
                                          made({8, 1}).t(),
                                          made({16}).slice(0, 0, 16, 2)};
  for (const at::Tensor& input : inputs) {
    for (const bool is_exact : {false, true}) {
      Both linear(kLinear, is_exact);
      expect_equal_runs(linear, {input, made({6, 8}), made({6})});
      expect_equal_runs(linear, {input, made({6, 8}), c10::IValue()});
      Both matmul(kMatmul, is_exact);
      expect_equal_runs(matmul, {input, made({8, 6})});
      expect_equal_runs(matmul, {input, made({6, 8}).t()});
      if (input.dim() == 2) {
        Both addmm(kAddmm, is_exact);
        expect_equal_runs(addmm, {input, made({8, 6}), made({6})});
      }
    }
  }
}

TEST(PackedWeights, ArePackedAfterSomeRuns) {
  const at::NoGradGuard no_grad;
  const size_t before = packed_weights_in_use();
  {
    Both both(kLinear, /*is_exact=*/false);
    const torch::jit::Stack arguments = {at::randn({3, 8}), at::randn({4, 8}), at::randn({4})};
    both.run(arguments);
    EXPECT_EQ(packed_weights_in_use(), before);
    for (int run = 1; run < kRuns; ++run) {
      both.run(arguments);
    }
    EXPECT_EQ(packed_weights_in_use(), before + 1);
    // Other plans and inputs of other sizes share them.
    Both other(kLinear, false);
    other.run({at::randn({5, 8}), arguments[1], arguments[2]});
    EXPECT_EQ(packed_weights_in_use(), before + 1);
    Both exact(kLinear, /*is_exact=*/true);
    for (int run = 0; run < kRuns; ++run) {
      exact.run({at::randn({3, 8}), at::randn({4, 8}), at::randn({4})});
    }
    EXPECT_EQ(packed_weights_in_use(), before + 1);
  }
  EXPECT_EQ(packed_weights_in_use(), before);
}

TEST(PackedWeights, ServeConvolutionsOfAllForms) {
  const at::NoGradGuard no_grad;
  struct Case {
    const char* stride;
    const char* padding;
    const char* dilation;
    int64_t groups;
    std::vector<int64_t> weight;
  };
  for (const Case& form : std::vector<Case>{{"1, 1", "0, 0", "1, 1", 1, {32, 8, 1, 1}},
                                            {"1, 1", "1, 1", "1, 1", 1, {32, 8, 3, 3}},
                                            {"2, 1", "0, 2", "1, 2", 1, {40, 8, 3, 2}},
                                            {"2, 2", "1, 1", "1, 1", 8, {8, 1, 3, 3}},
                                            {"1, 1", "2, 2", "1, 1", 8, {8, 1, 5, 5}},
                                            {"1, 1", "3, 3", "1, 1", 8, {8, 1, 7, 7}},
                                            {"1, 1", "1, 1", "1, 1", 8, {16, 1, 3, 3}},
                                            {"2, 1", "1, 0", "1, 1", 8, {8, 1, 5, 3}},
                                            {"1, 1", "1, 1", "2, 1", 8, {8, 1, 3, 3}},
                                            {"1, 3", "1, 1", "1, 1", 8, {8, 1, 3, 3}},
                                            {"1, 1", "1, 1", "1, 1", 2, {48, 4, 3, 3}},
                                            {"1, 1", "1, 1", "1, 1", 4, {8, 2, 3, 3}}}) {
    for (const bool has_bias : {true, false}) {
      Both both(convolution(form.stride, form.padding, form.dilation, form.groups), /*is_exact=*/false);
      const c10::IValue bias = has_bias ? c10::IValue(at::randn({form.weight[0]})) : c10::IValue();
      const at::Tensor weight = at::randn(form.weight);
      expect_equal_runs(both, {image({1, 8, 9, 10}), weight, bias});
      expect_equal_runs(both, {image({3, 8, 7, 7}), weight, bias});
      expect_equal_runs(both, {at::randn({2, 8, 9, 8}), weight, bias});
      expect_equal_runs(both, {at::randn({2, 8, 9, 8}), weight.contiguous(at::MemoryFormat::ChannelsLast), bias});
      expect_equal_runs(both, {at::randn({8, 9, 8}), weight, bias});
      expect_equal_runs(both, {image({1, 8, 9, 10}).to(at::kDouble), weight.to(at::kDouble),
                               has_bias ? c10::IValue(bias.toTensor().to(at::kDouble)) : bias});
    }
  }
}

// Depthwise convolutions, and those of few channels, in the sizes of image models.
TEST(PackedWeights, ServeConvolutionsWithoutProducts) {
  const at::NoGradGuard no_grad;
  for (const int64_t channels : {16, 40, 67}) {
    for (const std::string numbers : {"1, 1", "2, 2"}) {
      Both depthwise(convolution(numbers, "1, 1", "1, 1", channels), /*is_exact=*/false);
      const at::Tensor weight = at::randn({channels, 1, 3, 3});
      for (const int64_t size : {28, 14, 9, 3}) {
        expect_equal_runs(depthwise, {image({2, channels, size, size}), weight, at::randn({channels})});
      }
      Both first(convolution(numbers, "1, 1", "1, 1", 1), /*is_exact=*/false);
      const at::Tensor filters = at::randn({channels, 3, 3, 3});
      expect_equal_runs(first, {image({1, 3, 33, 35}), filters, at::randn({channels})});
      expect_equal_runs(first,
                        {at::randn({2, 3, 20, 8}), filters.contiguous(at::MemoryFormat::ChannelsLast), c10::IValue()});
      expect_equal_runs(first, {at::randn({2, 3, 20, 8}), filters, c10::IValue()});
    }
  }
}

TEST(PackedWeights, ServeConvolutionsOfRows) {
  const at::NoGradGuard no_grad;
  for (const std::string op : {"conv1d", "convolution"}) {
    for (const int64_t groups : {1, 2, 8}) {
      Both both(convolution("2", "1", "2", groups, op), /*is_exact=*/false);
      const at::Tensor weight = at::randn({48, 8 / groups, 3});
      expect_equal_runs(both, {at::randn({1, 8, 30}), weight, at::randn({48})});
      expect_equal_runs(both, {at::randn({3, 8, 6}), weight, c10::IValue()});
      expect_equal_runs(both, {at::randn({3, 12, 8}).transpose(1, 2), weight, at::randn({48})});
      for (const int64_t length : {1, 5}) {  // LibTorch may take such rows for channels-last images
        expect_equal_runs(both, {at::randn({8, length + 2, 8}).transpose(1, 2), weight, at::randn({48})});
        expect_equal_runs(both, {at::randn({8, 8, length + 4}), at::randn({48, 8 / groups, 1}), at::randn({48})});
      }
      if (op == "conv1d") {
        expect_equal_runs(both, {at::randn({8, 9}), weight, at::randn({48})});
      }
    }
  }
  Both images(convolution("1, 2", "1, 0", "1, 1", 1, "convolution"), /*is_exact=*/false);
  expect_equal_runs(images, {image({2, 8, 9, 9}), at::randn({32, 8, 3, 3}), at::randn({32})});
  expect_equal_runs(images, {at::randn({2, 8, 1, 1}), at::randn({32, 8, 1, 1}), c10::IValue()});
  expect_equal_runs(images, {at::randn({2, 1, 9, 9}), at::randn({32, 1, 3, 3}), at::randn({32})});
}

// An element reaches only the windows that hold it: no kernel multiplies others by zero.
TEST(PackedWeights, DoNotSpreadNaNs) {
  const at::NoGradGuard no_grad;
  for (const auto& [height, width] : std::vector<std::pair<int64_t, int64_t>>{
           {1, 1}, {1, 2}, {2, 2}, {1, 3}, {3, 3}, {4, 4}, {3, 5}, {5, 3}, {1, 7}, {5, 5}, {6, 4}, {7, 7}}) {
    for (const std::string stride : {"1, 1", "2, 2"}) {
      for (const int64_t groups : {1, 4, 16}) {
        Both both(convolution(stride, "1, 0", "1, 1", groups), /*is_exact=*/false);
        at::Tensor special = image({1, 16, 12, 11});
        special[0][3][6][5] = std::nan("");
        special[0][9][2][2] = std::numeric_limits<float>::infinity();
        const at::Tensor weight = at::rand({16, 16 / groups, height, width}) + 0.5;
        for (const at::Tensor& x : {special, special.contiguous()}) {
          for (int run = 0; run < kRuns; ++run) {
            const at::Tensor got = both.run({x, weight, at::ones({16})})[0].toTensor();
            const at::Tensor wanted = both.run_ordinary({x, weight, at::ones({16})})[0].toTensor();
            EXPECT_TRUE(at::allclose(got, wanted, kTolerance, kTolerance, /*equal_nan=*/true))
                << height << " x " << width << ", stride " << stride << ", groups " << groups << ", run " << run;
          }
        }
      }
    }
  }
}

// Puts a special value into each operand in turn. Zeros around an image must not meet an infinite weight.
TEST(PackedWeights, KeepSpecialValues) {
  const at::NoGradGuard no_grad;
  at::manual_seed(7);
  const auto expect_same = [](const std::string& text, const std::vector<at::Tensor>& operands, const std::string& what) {
    const float infinity = std::numeric_limits<float>::infinity();
    for (const float special : {std::nanf(""), infinity, -infinity, -0.0F, 1e-42F}) {
      for (size_t operand = 0; operand < operands.size(); ++operand) {
        torch::jit::Stack arguments;
        for (size_t i = 0; i < operands.size(); ++i) {
          at::Tensor tensor = operands[i].clone();
          if (i == operand) {
            const at::Tensor flat = tensor.as_strided({tensor.numel()}, {1});
            flat[0] = special;
            flat[tensor.numel() / 2] = special;
          }
          arguments.emplace_back(tensor);
        }
        Both both(text, /*is_exact=*/false);
        for (int run = 0; run < kRuns; ++run) {
          const at::Tensor got = both.run(arguments)[0].toTensor();
          const at::Tensor wanted = both.run_ordinary(arguments)[0].toTensor();
          EXPECT_TRUE(at::allclose(got, wanted, kTolerance, kTolerance, /*equal_nan=*/true))
              << what << ", " << special << " in operand " << operand << ", run " << run;
        }
      }
    }
  };
  for (const auto& [m, n, k] : std::vector<std::array<int64_t, 3>>{{1, 10, 20}, {5, 24, 33}, {40, 7, 100}, {64, 100, 800}}) {
    expect_same(kLinear, {at::randn({m, k}), at::randn({n, k}), at::randn({n})}, "linear");
    expect_same(kMatmul, {at::randn({m, k}), at::randn({k, n})}, "matmul");
  }
  for (const std::string padding : {"0, 0", "1, 1"}) {
    for (const auto& [in, out, groups, kernel] : std::vector<std::array<int64_t, 4>>{
             {3, 16, 1, 3}, {16, 24, 1, 1}, {16, 5, 1, 3}, {16, 16, 16, 3}, {12, 24, 3, 3}, {40, 33, 1, 2}}) {
      expect_same(convolution("1, 1", padding, "1, 1", groups),
                  {image({1, in, 9, 10}), at::randn({out, in / groups, kernel, kernel}), at::randn({out})},
                  "convolution " + std::to_string(in) + " to " + std::to_string(out) + ", padding " + padding);
    }
  }
}

// What is not a weight must not decide whether they are finite.
TEST(PackedWeights, WithoutABiasArePacked) {
  const at::NoGradGuard no_grad;
  for (const auto& [in, groups] : std::vector<std::pair<int64_t, int64_t>>{{16, 16}, {3, 1}}) {
    {
      const at::Tensor left_behind = at::full({16 * 9 * 4}, std::nan(""));
    }
    Both both(convolution("1, 1", "1, 1", "1, 1", groups), /*is_exact=*/false);
    const size_t before = packed_weights_in_use();
    expect_equal_runs(both, {image({1, in, 12, 12}), at::randn({16, in / groups, 3, 3}), c10::IValue()});
    EXPECT_EQ(packed_weights_in_use(), before + 1);
  }
}

TEST(PackedWeights, AreSharedByDepthwiseConvolutions) {
  const at::NoGradGuard no_grad;
  const at::Tensor weight = at::randn({8, 1, 3, 3});
  const at::Tensor bias = at::randn({8});
  const std::string text = convolution("1, 1", "1, 1", "1, 1", 8);
  Both first(text, /*is_exact=*/false);
  Both second(text, /*is_exact=*/false);
  for (int run = 0; run < kRuns; ++run) {
    first.expect_equal({image({1, 8, 9, 9}), weight, bias}, kTolerance);
  }
  for (int run = 0; run < kRuns; ++run) {
    second.expect_equal({image({2, 8, 7, 9}), weight, bias}, kTolerance);
    first.expect_equal({image({1, 8, 9, 9}), weight, bias}, kTolerance);
    first.expect_equal({image({1, 8, 5 + run, 9}), weight, bias}, kTolerance);
  }
}

// One memory, read in two orders.
TEST(PackedWeights, OfTwoLayoutsAreTwo) {
  const at::NoGradGuard no_grad;
  const std::string text = convolution("1, 1", "1, 1", "1, 1", 1);
  const at::Tensor weight = at::randn({32, 8, 3, 3});
  const at::Tensor other = weight.as_strided({32, 8, 3, 3}, {72, 1, 24, 8});
  Both first(text, /*is_exact=*/false);
  Both second(text, /*is_exact=*/false);
  expect_equal_runs(first, {image({1, 8, 9, 9}), weight, c10::IValue()});
  expect_equal_runs(second, {image({1, 8, 9, 9}), other, c10::IValue()});
  expect_equal_runs(first, {image({1, 8, 9, 9}), other, c10::IValue()});
}

TEST(PackedWeights, OfRejectedConvolutionsAreRejected) {
  const at::NoGradGuard no_grad;
  const auto expect_error = [](const std::string& text, const torch::jit::Stack& arguments, const torch::jit::Stack& good) {
    Both both(text, /*is_exact=*/false);
    for (int run = 0; run < kRuns; ++run) {
      both.expect_equal(good, kTolerance);
      EXPECT_THROW(both.run_ordinary(arguments), c10::Error) << text;
      EXPECT_THROW(both.run(arguments), c10::Error) << text;
    }
  };
  const torch::jit::Stack good = {image({1, 8, 9, 9}), at::randn({32, 8, 3, 3}), at::randn({32})};
  const std::string plain = convolution("1, 1", "0, 0", "1, 1", 1);
  expect_error(plain, {image({1, 7, 9, 9}), good[1], good[2]}, good);
  expect_error(plain, {image({1, 8, 2, 9}), good[1], good[2]}, good);
  expect_error(plain, {good[0], good[1], at::randn({31})}, good);
  // A window that is larger than the padded image by less than the stride.
  const std::string strided = convolution("3, 3", "0, 0", "1, 1", 1);
  expect_error(strided, {image({1, 8, 2, 9}), good[1], good[2]}, good);
  expect_error(strided, {image({1, 8, 9, 2}), good[1], good[2]}, good);
  const torch::jit::Stack depthwise = {image({1, 32, 9, 9}), at::randn({32, 1, 3, 3}), good[2]};
  expect_error(convolution("3, 3", "0, 0", "1, 1", 32), {image({1, 32, 9, 2}), depthwise[1], depthwise[2]}, depthwise);
  const torch::jit::Stack grouped = {image({1, 8, 9, 9}), at::randn({32, 4, 3, 3}), c10::IValue()};
  expect_error(convolution("1, 1", "0, 0", "1, 1", 2), {image({1, 9, 9, 9}), grouped[1], grouped[2]}, grouped);
}

// Writes that LibTorch counts, and those that it does not.
TEST(PackedWeights, FollowTheWeights) {
  const at::NoGradGuard no_grad;
  for (const bool is_image : {false, true}) {
    Both both(is_image ? convolution("1, 1", "1, 1", "1, 1", 1) : std::string(kLinear), /*is_exact=*/false);
    const at::Tensor x = is_image ? image({1, 8, 6, 6}) : at::randn({3, 8});
    at::Tensor weight = is_image ? at::randn({32, 8, 3, 3}) : at::randn({32, 8});
    at::Tensor bias = at::randn({32});
    const auto run = [&] {
      for (int i = 0; i < kRuns; ++i) {
        both.expect_equal({x, weight, bias}, kTolerance);
      }
    };
    run();
    weight.mul_(2);
    run();
    weight.select(0, 1).zero_();  // through a view
    run();
    bias.add_(1);
    run();
    weight.variable_data().mul_(0.5);
    run();
    at::mul_out(bias, bias, at::scalar_tensor(3));
    run();
    std::fill_n(weight.mutable_data_ptr<float>(), weight.numel(), 0.25F);
    run();
    weight = at::randn(weight.sizes());  // perhaps in the same memory
    run();
    weight.set_data(at::randn(weight.sizes()));
    run();
    for (int i = 0; i < 100; ++i) {
      weight.add_(0.01);
      both.expect_equal({x, weight, bias}, kTolerance);
      both.expect_equal({x, weight, bias}, kTolerance);
      both.expect_equal({x, weight, bias}, kTolerance);
    }
    {
      const c10::InferenceMode inference;
      weight = at::randn(weight.sizes());
      run();
      weight.mul_(2);
      run();
    }
  }
}

TEST(PackedWeights, ServeManyThreads) {
  const at::Tensor weight = at::randn({1024, 512});
  const at::Tensor bias = at::randn({1024});
  Both both(kLinear, /*is_exact=*/false);
  std::vector<std::thread> threads;
  for (int i = 0; i < 4; ++i) {
    threads.emplace_back([&, i] {
      const at::NoGradGuard no_grad;
      for (int run = 0; run < 10; ++run) {
        const at::Tensor x = at::randn({i + 1, 512});
        const torch::jit::Stack got = both.run({x, weight, bias});
        EXPECT_TRUE(agree(got[0], c10::IValue(at::linear(x, weight, bias)), kTolerance));
      }
    });
  }
  for (std::thread& thread : threads) {
    thread.join();
  }
}

}  // namespace
}  // namespace sconce
