// Elements and rows by index: look-ups, gathers, scatters.
#include "ops/rows.h"

namespace sconce {
namespace {

constexpr std::string_view kSizesOfBags = R"(
def sizes(weight: List[int], indices: List[int], offsets: List[int], scale_grad_by_freq: bool, mode: int, sparse: bool,
          per_sample_weights: Optional[List[int]], include_last_offset: bool):
    return [offsets[0] - 1 if include_last_offset else offsets[0], weight[1]]
)";

constexpr std::string_view kSizesOfBagGradients = R"(
def sizes(grad: List[int], indices: List[int], offsets: List[int], offset2bag: List[int], bag_size: List[int],
          maximum_indices: List[int], num_weights: int):
    return [num_weights, grad[1]]
)";

}  // namespace

std::span<const OpRow> indexing_rows() {
  constexpr ResultDtype kOfIndices = ResultDtype::kIndices;
  static const std::vector<ResultDtype> dtypes_of_bags = {ResultDtype::kFirst, kOfIndices, kOfIndices, kOfIndices};
  static const std::vector<OpRow> rows = {
      {.name = "aten::embedding",
       .backward_ignores_result = true,
       .result = {.dtypes = {ResultDtype::kFirst}},
       .looked_up = "weight",
       .backward = "(torch.embedding_dense_backward(grad, indices, weight.size(0), padding_idx, scale_grad_by_freq),)",
       .differentiable_if = "not sparse"},
      {.name = "aten::embedding_bag",
       .overloads = {""},
       .results = Sharing::kFresh,
       .result = {.dtypes = dtypes_of_bags, .sizes = kSizesOfBags},
       .looked_up = "weight",
       .forward = R"(
result, bag_of_offset, bag_size, largest = torch._embedding_bag(
    weight, indices.contiguous(), offsets.contiguous(), scale_grad_by_freq, mode, sparse, per_sample_weights,
    include_last_offset)
return (result, bag_of_offset, bag_size, largest)
)",
       .backward = R"(
return (torch._embedding_bag_backward(
    grad0, indices.contiguous(), offsets.contiguous(), result1, result2, result3, weight.size(0), scale_grad_by_freq,
    mode, False, None),)
)",
       .differentiable_if = "not sparse and per_sample_weights is None"},
      {.name = "aten::embedding_bag",
       .overloads = {"padding_idx"},
       .results = Sharing::kFresh,
       .result = {.dtypes = dtypes_of_bags, .sizes = kSizesOfBags},
       .looked_up = "weight",
       .forward = R"(
result, bag_of_offset, bag_size, largest = torch._embedding_bag(
    weight, indices.contiguous(), offsets.contiguous(), scale_grad_by_freq, mode, sparse, per_sample_weights,
    include_last_offset, -1 if padding_idx is None else padding_idx)
return (result, bag_of_offset, bag_size, largest)
)",
       .backward = R"(
return (torch._embedding_bag_backward(
    grad0, indices.contiguous(), offsets.contiguous(), result1, result2, result3, weight.size(0), scale_grad_by_freq,
    mode, False, None, -1 if padding_idx is None else padding_idx),)
)",
       .differentiable_if = "not sparse and per_sample_weights is None and "
                            "(padding_idx is None or (0 <= padding_idx and padding_idx < weight.size(0)))"},
      // The sizes of the other results depend on the mode and on the kernel.
      {.name = "aten::_embedding_bag",
       .results = Sharing::kFresh,
       .result = {.dtypes = dtypes_of_bags, .sizes = kSizesOfBags}},
      {.name = "aten::_embedding_bag_forward_only",
       .results = Sharing::kFresh,
       .result = {.dtypes = dtypes_of_bags, .sizes = kSizesOfBags}},
      {.name = "aten::_embedding_bag_backward", .result = {.dtypes = {ResultDtype::kFirst}, .sizes = kSizesOfBagGradients}},
      {.name = "aten::gather",
       .result = {.sizes = "def sizes(self: List[int], dim: int, index: List[int]):\n    return index\n"},
       .looked_up = "self",
       .backward = "(grad.new_zeros(self.size()).scatter_add(dim, index, grad),)",
       .differentiable_if = "not sparse_grad"},
      {.name = "aten::index",
       .overloads = {"Tensor", "Tensor_hacked_twin"},
       .opcode = Opcode::kIndexed,
       .result = {.dtypes = {ResultDtype::kFirst}},
       .looked_up = "self",
       .backward = "(torch.index_put(grad.new_zeros(self.size()), indices, grad, True),)"},
      {.name = "aten::index_add",
       .result = {.dtypes = {ResultDtype::kFirst}, .keeps_sizes = true},
       .backward = "(grad, None, None, grad.index_select(dim, index) * alpha)",
       .differentiable_if = "source.dim() > 0"},
      {.name = "aten::index_copy", .result = {.dtypes = {ResultDtype::kFirst}, .keeps_sizes = true}},
      {.name = "aten::index_copy",
       .overloads = {""},
       .result = {.dtypes = {ResultDtype::kFirst}, .keeps_sizes = true},
       .backward = "(grad.index_fill(dim, index, 0), None, None, grad.index_select(dim, index))",
       .differentiable_if = "source.dim() > 0"},
      {.name = "aten::index_fill", .result = {.dtypes = {ResultDtype::kFirst}, .keeps_sizes = true}},
      {.name = "aten::index_fill",
       .overloads = {"int_Scalar"},
       .result = {.dtypes = {ResultDtype::kFirst}, .keeps_sizes = true},
       .backward = "(grad.index_fill(dim, index, 0),)"},
      {.name = "aten::index_put", .autocast = Autocast::kWidest, .backward = R"(
if accumulate:
    of_self = grad
else:
    of_self = torch.index_put(grad, indices, grad.new_zeros(values.size()))
return (of_self, None, torch.index(grad, indices))
)"},
      {.name = "aten::index_select",
       .backward_ignores_result = true,
       .result = {.dtypes = {ResultDtype::kFirst}},
       .looked_up = "self",
       .backward = "(torch.index_select_backward(grad, self.size(), dim, index),)"},
      {.name = "aten::masked_scatter",
       .backward = "(grad.masked_fill(mask, 0), None, torch.masked_scatter_backward(grad, mask, source.size()))"},
      {.name = "aten::masked_select",
       .result = {.dtypes = {ResultDtype::kFirst}, .runs_on_empty = true},
       .backward = "(torch.masked_select_backward(grad, self, mask),)"},
      {.name = "aten::_no_grad_embedding_renorm_", .written = {"weight"}, .results = Sharing::kShared},
      {.name = "aten::argwhere", .result = {.runs_on_empty = true}},
      {.name = "aten::bucketize", .result = {.runs_on_empty = true}},
      {.name = "aten::bucketize", .overloads = {"Tensor"}, .result = {.keeps_sizes = true, .runs_on_empty = true}},
      {.name = "aten::nonzero", .result = {.runs_on_empty = true}},
      {.name = "aten::nonzero_numpy", .result = {.runs_on_empty = true}},
      {.name = "aten::repeat_interleave", .result = {.runs_on_empty = true}},
      {.name = "aten::scatter_reduce", .result = {.dtypes = {ResultDtype::kFirst}, .keeps_sizes = true}},
      {.name = "aten::searchsorted", .result = {.runs_on_empty = true}},
      {.name = "aten::searchsorted",
       .overloads = {"Tensor"},
       .result = {.sizes = "def sizes(sorted_sequence: List[int], self: List[int]):\n    return self\n",
                  .runs_on_empty = true}},
      {.name = "aten::unique_consecutive", .result = {.runs_on_empty = true}},
      {.name = "aten::unique_dim", .result = {.runs_on_empty = true}},
      {.name = "aten::_unique2", .result = {.runs_on_empty = true}},
      {.name = "aten::one_hot", .results = Sharing::kFresh, .result = {.dtypes = {ResultDtype::kInt64}}},
      {.name = "aten::put", .result = {.dtypes = {ResultDtype::kFirst}, .keeps_sizes = true}, .recorded_gradient = true},
      {.name = "aten::scatter", .result = {.keeps_sizes = true}},
      {.name = "aten::scatter",
       .overloads = {"src"},
       .result = {.keeps_sizes = true},
       .backward = "(grad.scatter(dim, index, 0), None, None, grad.gather(dim, index))"},
      {.name = "aten::scatter",
       .overloads = {"value"},
       .result = {.keeps_sizes = true},
       .backward = "(grad.scatter(dim, index, 0),)"},
      {.name = "aten::scatter_add",
       .result = {.keeps_sizes = true},
       .backward = "(grad, None, None, grad.gather(dim, index))"},
      {.name = "aten::take",
       .result = {.dtypes = {ResultDtype::kFirst}, .sizes = R"(
def sizes(self: List[int], index: List[int]):
    return index
)"},
       .looked_up = "self",
       .recorded_gradient = true},
      {.name = "aten::_unsafe_masked_index", .written = {"self", "mask", "indices"}},
      {.name = "aten::_unsafe_masked_index_put_accumulate", .written = {"self", "mask", "indices", "values"}},
  };
  return rows;
}

}  // namespace sconce
