// New tensors, from sizes, numbers or random numbers.
#include "ops/rows.h"

namespace sconce {
namespace {

constexpr std::string_view kGivenSizes = "def sizes(size: List[int]):\n    return size\n";

constexpr std::string_view kNewSizes = "def sizes(self: List[int], size: List[int]):\n    return size\n";

}  // namespace

std::span<const OpRow> factory_rows() {
  static const std::vector<OpRow> rows = {
      {.name = "aten::alpha_dropout", .result = {.dtypes = {ResultDtype::kFirst}, .keeps_sizes = true}},
      {.name = "aten::bernoulli", .result = {.dtypes = {ResultDtype::kFirst}, .keeps_sizes = true}},
      // LibTorch computes it by another operator on a GPU, which draws other numbers.
      {.name = "aten::dropout",
       .forward = R"(
if input.is_cuda:
    result, noise = torch.native_dropout(input, p, True)
else:
    noise = torch.empty_like(input).bernoulli_(1 - p).div_(1 - p)
    result = input * noise
return (result, noise)
)",
       .backward = R"(
if saved_0.dtype == 11:
    of_input = torch.native_dropout_backward(grad, saved_0, 1 / (1 - p))
else:
    of_input = grad * saved_0
return (of_input,)
)",
       .differentiable_if = "train and p > 0 and p < 1"},
      {.name = "aten::bernoulli_", .overwrites = true},
      {.name = "aten::_efficientzerotensor", .may_overlap = true},
      {.name = "aten::empty",
       .overloads = {"memory_format"},
       .makes_no_contents = true,
       .layout = Layout::kNew,
       .backward_ignores_result = true,
       .result = {.sizes = kGivenSizes}},
      {.name = "aten::empty_like",
       .makes_no_contents = true,
       .backward_ignores_result = true,
       .result = {.keeps_sizes = true}},
      {.name = "aten::empty_permuted", .makes_no_contents = true},
      {.name = "aten::empty_strided", .may_overlap = true, .makes_no_contents = true},
      {.name = "aten::exponential_", .overwrites = true},
      {.name = "aten::feature_dropout",
       .result = {.dtypes = {ResultDtype::kFirst}, .keeps_sizes = true},
       .forward = R"(
noise = input.new_empty(input.size()[:2] + [1] * (input.dim() - 2)).bernoulli_(1 - p).div_(1 - p)
return (input * noise, noise)
)",
       .backward = "(grad * saved_0,)",
       .differentiable_if = "train and p > 0 and p < 1 and input.dim() > 1"},
      {.name = "aten::full",
       .overloads = {""},
       .layout = Layout::kNew,
       .backward_ignores_result = true,
       .result = {.sizes = kGivenSizes}},
      {.name = "aten::full_like", .backward_ignores_result = true, .result = {.keeps_sizes = true}},
      {.name = "aten::multinomial", .result = {.dtypes = {ResultDtype::kInt64}, .sizes = R"(
def sizes(self: List[int], num_samples: int):
    out = self.copy()
    out[-1] = num_samples
    return out
)"}},
      {.name = "aten::native_dropout",
       .result = {.dtypes = {ResultDtype::kFirst, ResultDtype::kBool}, .keeps_sizes = true},
       .backward = R"(
scale = 1.0
if train is not None and train:
    scale = 0.0 if p == 1 else 1 / (1 - p)
return (torch.native_dropout_backward(grad0, result1, scale),)
)"},
      {.name = "aten::new_empty",
       .overloads = {""},
       .makes_no_contents = true,
       .layout = Layout::kNew,
       .backward_ignores_result = true,
       .result = {.sizes = kNewSizes}},
      {.name = "aten::new_empty_strided", .may_overlap = true, .makes_no_contents = true, .result = {.sizes = kNewSizes}},
      {.name = "aten::new_full",
       .overloads = {""},
       .layout = Layout::kNew,
       .backward_ignores_result = true,
       .result = {.sizes = kNewSizes}},
      {.name = "aten::new_ones",
       .overloads = {""},
       .layout = Layout::kNew,
       .backward_ignores_result = true,
       .result = {.sizes = kNewSizes}},
      {.name = "aten::new_zeros",
       .overloads = {""},
       .layout = Layout::kNew,
       .backward_ignores_result = true,
       .result = {.sizes = kNewSizes}},
      {.name = "aten::ones",
       .overloads = {""},
       .layout = Layout::kNew,
       .backward_ignores_result = true,
       .result = {.sizes = kGivenSizes}},
      {.name = "aten::normal_", .overwrites = true},
      {.name = "aten::ones_like", .backward_ignores_result = true, .result = {.keeps_sizes = true}},
      {.name = "aten::rand", .overloads = {""}, .result = {.sizes = kGivenSizes}},
      {.name = "aten::rand_like", .result = {.keeps_sizes = true}},
      {.name = "aten::randint", .result = {.sizes = "def sizes(high: int, size: List[int]):\n    return size\n"}},
      {.name = "aten::randint",
       .overloads = {"low"},
       .result = {.sizes = "def sizes(low: int, high: int, size: List[int]):\n    return size\n"}},
      {.name = "aten::randint_like", .result = {.keeps_sizes = true}},
      {.name = "aten::randn", .overloads = {""}, .result = {.sizes = kGivenSizes}},
      {.name = "aten::randn_like", .result = {.keeps_sizes = true}},
      {.name = "aten::random_", .overwrites = true},
      {.name = "aten::randperm", .result = {.sizes = "def sizes(n: int):\n    return [n]\n"}},
      {.name = "aten::scalar_tensor", .result = {.sizes_by_structure = true}},
      {.name = "aten::tensor", .result = {.sizes_by_structure = true}},
      {.name = "aten::uniform_", .overwrites = true},
      {.name = "aten::zeros",
       .overloads = {""},
       .layout = Layout::kNew,
       .backward_ignores_result = true,
       .result = {.sizes = kGivenSizes}},
      {.name = "aten::zeros_like", .backward_ignores_result = true, .result = {.keeps_sizes = true}},
  };
  return rows;
}

}  // namespace sconce
