// Sums, extremes, scans, sorting, softmax.
#include "ops/rows.h"

namespace sconce {
namespace {

constexpr std::string_view kDistanceSizes = R"(
def sizes(x1: List[int], x2: List[int]):
    return batch_sizes(x1, x2) + [x1[-2], x2[-2]]
)";
constexpr std::string_view kSelectionBackward =
    "(torch.value_selecting_reduction_backward(grad0, dim, result1, self.size(), keepdim),)";
constexpr std::string_view kExtremeBackward = R"(
chosen = (self == result) | (torch.isnan(self) & torch.isnan(result))
return (torch.where(chosen, grad / torch.sum(chosen), 0),)
)";
constexpr std::string_view kScalarSizes = R"(
def sizes(self: List[int]):
    out: List[int] = []
    return out
)";

constexpr std::string_view kNoSizes = R"(
def sizes(element: float):
    out: List[int] = []
    return out
)";

}  // namespace

std::span<const OpRow> reduction_rows() {
  using enum Autocast;
  using enum ResultDtype;
  using enum Sharing;
  static const std::vector<OpRow> rows = {
      {.name = "aten::_cdist_forward", .result = {.dtypes = {kFloating}, .sizes = kDistanceSizes}},
      {.name = "aten::all", .overloads = {""}, .result = {.sizes = kScalarSizes}},
      {.name = "aten::amax", .backward = R"(
chosen = restored(result, dim, keepdim, self.dim()) == self
return ((restored(grad, dim, keepdim, self.dim()) * chosen) / torch.sum(chosen, dim, True),)
)"},
      {.name = "aten::amin", .backward = R"(
chosen = restored(result, dim, keepdim, self.dim()) == self
return ((restored(grad, dim, keepdim, self.dim()) * chosen) / torch.sum(chosen, dim, True),)
)"},
      {.name = "aten::any", .overloads = {""}, .result = {.sizes = kScalarSizes}},
      {.name = "aten::argsort", .result = {.keeps_sizes = true}},
      {.name = "aten::cdist", .autocast = kFull, .result = {.dtypes = {kFloating}}},
      {.name = "aten::cosine_similarity", .autocast = kFull},
      {.name = "aten::cumprod", .autocast = kFullUnlessDtype, .result = {.keeps_sizes = true}},
      {.name = "aten::cummax", .result = {.keeps_sizes = true}},
      {.name = "aten::cummin", .result = {.keeps_sizes = true}},
      {.name = "aten::cumsum",
       .autocast = kFullUnlessDtype,
       .result = {.keeps_sizes = true},
       .backward = "(grad if grad.dim() == 0 else grad.flip([dim]).cumsum(dim).flip([dim]),)"},
      {.name = "aten::dist",
       .autocast = kFull,
       .result = {.dtypes = {kPromoted}, .sizes = kScalarSizes},
       .recorded_gradient = true},
      {.name = "aten::equal", .autocast = kWidest},
      {.name = "aten::frobenius_norm", .autocast = kFull},
      {.name = "aten::isin", .overloads = {"Scalar_Tensor"}, .result = {.sizes = kNoSizes, .differs_on_meta = true}},
      {.name = "aten::kthvalue", .result = {.dtypes = {kFirst, kInt64}}, .backward = kSelectionBackward},
      {.name = "aten::linalg_vector_norm",
       .backward = R"(
length = restored(result, dim, keepdim, self.dim())
return (restored(grad, dim, keepdim, self.dim()) * torch.where(length == 0, 0, self / length),)
)",
       .differentiable_if = "float(ord) == 2"},
      {.name = "aten::log_softmax",
       .results = kFresh,
       .autocast = kFullUnlessDtype,
       .result = {.keeps_sizes = true},
       .backward = "(torch._log_softmax_backward_data(grad, result, dim, result.dtype),)"},
      {.name = "aten::_log_softmax",
       .result = {.keeps_sizes = true},
       .backward = "(torch._log_softmax_backward_data(grad, result, dim, self.dtype),)"},
      {.name = "aten::logsumexp", .result = {.dtypes = {kFloating}}, .backward = R"(
whole = restored(result, dim, keepdim, self.dim())
return (restored(grad, dim, keepdim, self.dim()) * torch.exp(self - whole),)
)"},
      {.name = "aten::max",
       .overloads = {""},
       .result = {.dtypes = {kFirst}, .sizes = kScalarSizes},
       .backward = kExtremeBackward},
      {.name = "aten::max", .overloads = {"other"}, .results = kFresh, .backward = R"(
half = torch.where(self == other, grad / 2, grad)
return (torch.where(self < other, 0, half), torch.where(other < self, 0, half))
)"},
      {.name = "aten::max", .overloads = {"dim"}, .backward = kSelectionBackward},
      {.name = "aten::mean", .layout = Layout::kReduces, .backward_ignores_result = true, .backward = R"(
each = restored(grad, dim, keepdim, self.dim())
return ((each / max(self.numel() // max(each.numel(), 1), 1)).expand(self.size()),)
)"},
      {.name = "aten::mean",
       .overloads = {""},
       .layout = Layout::kReduces,
       .backward_ignores_result = true,
       .backward = "((grad / max(self.numel(), 1)).expand(self.size()),)"},
      {.name = "aten::median", .overloads = {"dim"}, .result = {.dtypes = {kFirst, kInt64}}, .backward = kSelectionBackward},
      {.name = "aten::min",
       .overloads = {""},
       .result = {.dtypes = {kFirst}, .sizes = kScalarSizes},
       .backward = kExtremeBackward},
      {.name = "aten::min", .overloads = {"other"}, .results = kFresh, .backward = R"(
half = torch.where(self == other, grad / 2, grad)
return (torch.where(self > other, 0, half), torch.where(other > self, 0, half))
)"},
      {.name = "aten::min", .overloads = {"dim"}, .backward = kSelectionBackward},
      {.name = "aten::mode", .result = {.dtypes = {kFirst, kInt64}}, .backward = kSelectionBackward},
      {.name = "aten::norm",
       .overloads = {"Scalar", "ScalarOpt_dtype"},
       .backward = "(grad * torch.where(result == 0, 0, self / result),)",
       .differentiable_if = "p is None or float(p) == 2"},
      {.name = "aten::norm",
       .overloads = {"ScalarOpt_dim", "ScalarOpt_dim_dtype"},
       .backward = R"(
length = restored(result, dim, keepdim, self.dim())
return (restored(grad, dim, keepdim, self.dim()) * torch.where(length == 0, 0, self / length),)
)",
       .differentiable_if = "p is None or float(p) == 2"},
      {.name = "aten::nuclear_norm", .autocast = kFull},
      {.name = "aten::pdist", .autocast = kFull, .result = {.dtypes = {kFirst}}},
      {.name = "aten::prod",
       .autocast = kFullUnlessDtype,
       .backward = R"(
flat = self
ones = torch.ones_like(flat.narrow(dim, 0, 1))
count = flat.size(dim) - 1
before = torch.cat([ones, flat.narrow(dim, 0, count)], dim).cumprod(dim)
after = torch.cat([ones, flat.flip([dim]).narrow(dim, 0, count)], dim).cumprod(dim).flip([dim])
return ((grad if keepdim else grad.unsqueeze(dim)) * before * after,)
)",
       .differentiable_if = "self.dim() > 0 and self.numel() > 0"},
      {.name = "aten::prod",
       .overloads = {""},
       .autocast = kFullUnlessDtype,
       .backward = R"(
flat = self.reshape([-1])
ones = torch.ones_like(flat.narrow(0, 0, 1))
count = flat.size(0) - 1
before = torch.cat([ones, flat.narrow(0, 0, count)], 0).cumprod(0)
after = torch.cat([ones, flat.flip([0]).narrow(0, 0, count)], 0).cumprod(0).flip([0])
return ((grad * before * after).reshape(self.size()),)
)",
       .differentiable_if = "self.numel() > 0"},
      {.name = "aten::renorm",
       .autocast = kFull,
       .result = {.dtypes = {kFirst}, .keeps_sizes = true},
       .recorded_gradient = true},
      {.name = "aten::softmax",
       .results = kFresh,
       .autocast = kFullOnCudaUnlessDtype,
       .result = {.keeps_sizes = true},
       .backward = "(torch._softmax_backward_data(grad, result, dim, result.dtype),)"},
      {.name = "aten::_softmax",
       .result = {.keeps_sizes = true},
       .backward = "(torch._softmax_backward_data(grad, result, dim, self.dtype),)"},
      {.name = "aten::sort",
       .opcode = Opcode::kSort,
       .result = {.keeps_sizes = true},
       .backward = "(torch.value_selecting_reduction_backward(grad0, dim, result1, self.size(), True),)"},
      {.name = "aten::std", .results = kFresh},
      {.name = "aten::std", .overloads = {"correction"}, .results = kFresh, .result = {.dtypes = {kReal}}, .backward = R"(
of_variance = (grad / (result * 2)).masked_fill(result == 0, 0)
return (variance_gradient(of_variance, self, dim, 1.0 if correction is None else float(correction), keepdim),)
)"},
      {.name = "aten::std", .overloads = {"dim"}, .results = kFresh, .result = {.dtypes = {kReal}}, .backward = R"(
of_variance = (grad / (result * 2)).masked_fill(result == 0, 0)
return (variance_gradient(of_variance, self, dim, float(unbiased), keepdim),)
)"},
      {.name = "aten::std", .overloads = {""}, .results = kFresh, .result = {.dtypes = {kReal}}, .backward = R"(
of_variance = (grad / (result * 2)).masked_fill(result == 0, 0)
return (variance_gradient(of_variance, self, None, float(unbiased), False),)
)"},
      {.name = "aten::sum",
       .layout = Layout::kReduces,
       .autocast = kFullUnlessDtype,
       .backward = "(restored(grad, dim, keepdim, self.dim()).expand(self.size()),)"},
      {.name = "aten::sum",
       .overloads = {""},
       .layout = Layout::kReduces,
       .autocast = kFullUnlessDtype,
       .backward = "(grad.expand(self.size()),)"},
      {.name = "aten::sum_to_size", .result = {.dtypes = {kFirst}, .sizes = R"(
def sizes(self: List[int], size: List[int]):
    return size
)"}},
      {.name = "aten::topk",
       .backward = "(torch.value_selecting_reduction_backward(grad0, dim, result1, self.size(), True),)"},
      {.name = "aten::trace", .result = {.dtypes = {kFloating}}, .backward = "(torch.trace_backward(grad, self.size()),)"},
      {.name = "aten::var", .results = kFresh},
      {.name = "aten::var",
       .overloads = {"correction"},
       .results = kFresh,
       .result = {.dtypes = {kReal}},
       .backward = "(variance_gradient(grad, self, dim, 1.0 if correction is None else float(correction), keepdim),)"},
      {.name = "aten::var",
       .overloads = {"dim"},
       .results = kFresh,
       .result = {.dtypes = {kReal}},
       .backward = "(variance_gradient(grad, self, dim, float(unbiased), keepdim),)"},
      {.name = "aten::var",
       .overloads = {""},
       .results = kFresh,
       .result = {.dtypes = {kReal}},
       .backward = "(variance_gradient(grad, self, None, float(unbiased), False),)"},
      {.name = "aten::var_mean", .overloads = {"correction"}, .result = {.dtypes = {kReal, kFirst}}, .backward = R"(
of_self = restored(grad1, dim, keepdim, self.dim())
of_self = of_self.expand(self.size()) / (self.numel() // max(of_self.numel(), 1))
if defined[0]:
    of_variance = variance_gradient(grad0, self, dim, 1.0 if correction is None else float(correction), keepdim)
    of_self = of_variance + of_self if defined[1] else of_variance
return (of_self,)
)"},
  };
  return rows;
}

}  // namespace sconce
