// Sums, extremes, scans, sorting, softmax.
#include "ops/rows.h"

namespace sconce {
namespace {

constexpr std::string_view kPositionSizes = R"(
def sizes(self: List[int], dim: Optional[int], keepdim: bool):
    out: List[int] = []
    for i in range(len(self)):
        if dim is None or i == dim or i == dim + len(self):
            if keepdim:
                out.append(1)
        else:
            out.append(self[i])
    return out
)";

constexpr std::string_view kReducedSizes = R"(
def sizes(self: List[int], dim: List[int], keepdim: bool):
    out: List[int] = []
    for i in range(len(self)):
        is_reduced = len(dim) == 0
        for d in dim:
            if d == i or d + len(self) == i:
                is_reduced = True
        if is_reduced:
            if keepdim:
                out.append(1)
        else:
            out.append(self[i])
    return out
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
  static const std::vector<OpRow> rows = {
      {.name = "aten::all", .overloads = {""}, .result = {.sizes = kScalarSizes}},
      {.name = "aten::amax", .result = {.sizes = kReducedSizes}},
      {.name = "aten::amin", .result = {.sizes = kReducedSizes}},
      {.name = "aten::any", .overloads = {""}, .result = {.sizes = kScalarSizes}},
      {.name = "aten::argmax", .result = {.sizes = kPositionSizes}},
      {.name = "aten::argmin", .result = {.sizes = kPositionSizes}},
      {.name = "aten::argsort", .result = {.keeps_sizes = true}},
      {.name = "aten::cdist", .autocast = Autocast::kFull},
      {.name = "aten::cosine_similarity", .autocast = Autocast::kFull},
      {.name = "aten::cumprod", .autocast = Autocast::kFullUnlessDtype, .result = {.keeps_sizes = true}},
      {.name = "aten::cumsum", .autocast = Autocast::kFullUnlessDtype, .result = {.keeps_sizes = true}},
      {.name = "aten::dist", .autocast = Autocast::kFull},
      {.name = "aten::equal", .autocast = Autocast::kWidest},
      {.name = "aten::frobenius_norm", .autocast = Autocast::kFull},
      {.name = "aten::isin", .overloads = {"Scalar_Tensor"}, .result = {.sizes = kNoSizes, .differs_on_meta = true}},
      {.name = "aten::log_softmax",
       .results = Sharing::kFresh,
       .autocast = Autocast::kFullUnlessDtype,
       .result = {.keeps_sizes = true}},
      {.name = "aten::max", .overloads = {""}, .result = {.dtypes = {ResultDtype::kFirst}, .sizes = kScalarSizes}},
      {.name = "aten::mean",
       .layout = Layout::kReduces,
       .backward_ignores_result = true,
       .backward = "(restored(grad, dim, keepdim, self.dim()).expand(self.size()) / (self.numel() // grad.numel() if "
                   "grad.numel() > 0 else 1),)"},
      {.name = "aten::mean",
       .overloads = {""},
       .layout = Layout::kReduces,
       .backward_ignores_result = true,
       .backward = "(grad.expand(self.size()) / self.numel(),)"},
      {.name = "aten::min", .overloads = {""}, .result = {.dtypes = {ResultDtype::kFirst}, .sizes = kScalarSizes}},
      {.name = "aten::nuclear_norm", .autocast = Autocast::kFull},
      {.name = "aten::pdist", .autocast = Autocast::kFull},
      {.name = "aten::prod", .autocast = Autocast::kFullUnlessDtype},
      {.name = "aten::renorm", .autocast = Autocast::kFull},
      {.name = "aten::softmax",
       .results = Sharing::kFresh,
       .autocast = Autocast::kFullOnCudaUnlessDtype,
       .result = {.keeps_sizes = true}},
      {.name = "aten::sort", .opcode = Opcode::kSort, .result = {.keeps_sizes = true}},
      {.name = "aten::std", .results = Sharing::kFresh},
      {.name = "aten::sum",
       .layout = Layout::kReduces,
       .autocast = Autocast::kFullUnlessDtype,
       .backward = "(restored(grad, dim, keepdim, self.dim()).expand(self.size()),)"},
      {.name = "aten::sum",
       .overloads = {""},
       .layout = Layout::kReduces,
       .autocast = Autocast::kFullUnlessDtype,
       .backward = "(grad.expand(self.size()),)"},
      {.name = "aten::var", .results = Sharing::kFresh},
  };
  return rows;
}

}  // namespace sconce
