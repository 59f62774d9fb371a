// Sparse and quantized tensors, collectives, torchvision's operators, LibTorch's own tests.
#include "ops/rows.h"

namespace sconce {
namespace {

constexpr std::string_view kQuantizedLstmSizes = R"(
def sizes(input: List[int], hx: List[List[int]], params: List[int], has_biases: bool, num_layers: int, dropout: float,
          train: bool, bidirectional: bool):
    out = input.copy()
    out[-1] = hx[0][-1] * 2 if bidirectional else hx[0][-1]
    return out, hx[0], hx[1]
)";

constexpr std::string_view kPackedLinearSizes = R"(
def sizes(input: List[int], packed: Tuple[List[int], Optional[List[int]]]):
    out = input.copy()
    out[-1] = packed[0][0]
    return out
)";

constexpr std::string_view kProductSizes = R"(
def sizes(self: List[int], mat2: List[int]):
    out = self.copy()
    out[-1] = mat2[-1]
    return out
)";

}  // namespace

std::span<const OpRow> library_rows() {
  static const std::vector<OpRow> rows = {
      {.name = "aten::coalesce", .result = {.keeps_sizes = true, .accepts_sparse = true}},
      {.name = "aten::dequantize", .results = Sharing::kShared},
      {.name = "aten::_foobar", .results = Sharing::kShared},
      // Ends the collective that writes its operand, and returns that tensor.
      {.name = "_c10d_functional::wait_tensor", .written = {"tensor"}, .results = Sharing::kShared},
      {.name = "quantized::linear", .result = {.dtypes = {ResultDtype::kFirst}, .sizes = kPackedLinearSizes}},
      {.name = "quantized::linear_dynamic", .result = {.dtypes = {ResultDtype::kFirst}, .sizes = kPackedLinearSizes}},
      {.name = "quantized::linear_dynamic_fp16", .result = {.dtypes = {ResultDtype::kFirst}, .sizes = kPackedLinearSizes}},
      {.name = "quantized::linear_relu", .result = {.dtypes = {ResultDtype::kFirst}, .sizes = kPackedLinearSizes}},
      {.name = "quantized::linear_relu_dynamic", .result = {.dtypes = {ResultDtype::kFirst}, .sizes = kPackedLinearSizes}},
      {.name = "quantized::linear_relu_dynamic_fp16",
       .result = {.dtypes = {ResultDtype::kFirst}, .sizes = kPackedLinearSizes}},
      {.name = "aten::quantize_per_tensor", .results = Sharing::kFresh},  // its quantizer holds numbers
      {.name = "aten::quantize_per_tensor_dynamic", .results = Sharing::kFresh},
      {.name = "torchvision::nms", .result = {.dtypes = {ResultDtype::kInt64}}},
      {.name = "aten::quantized_lstm",
       .overloads = {"input"},
       .result = {.dtypes = {ResultDtype::kFirst, ResultDtype::kFirst, ResultDtype::kFirst}, .sizes = kQuantizedLstmSizes}},
      {.name = "aten::resize_as_sparse_", .resizes = true},
      {.name = "aten::_sparse_mm", .result = {.sizes = kProductSizes, .accepts_sparse = true}},
      {.name = "aten::_test_optional_filled_intlist", .results = Sharing::kShared},
      {.name = "aten::_test_optional_floatlist", .results = Sharing::kShared},
      {.name = "aten::_test_optional_intlist", .results = Sharing::kShared},
      {.name = "aten::_test_parallel_materialize", .results = Sharing::kShared},
      {.name = "aten::to_dense", .result = {.keeps_sizes = true, .accepts_sparse = true}},
      {.name = "aten::to_mkldnn", .results = Sharing::kFresh},
      {.name = "aten::to_sparse", .result = {.keeps_sizes = true, .differs_on_meta = true}},
      {.name = "aten::to_sparse_csr", .result = {.keeps_sizes = true, .differs_on_meta = true}},
  };
  return rows;
}

}  // namespace sconce
