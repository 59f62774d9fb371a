// Joins and cuts of tensors, gathers and scatters.
#include "ops/rows.h"

namespace sconce {

std::span<const OpRow> joining_rows() {
  static const std::vector<OpRow> rows = {
      {.name = "aten::cat",
       .opcode = Opcode::kCat,
       .layout = Layout::kImages,
       .backward_ignores_result = true,
       .autocast = Autocast::kWidest},
      {.name = "aten::chunk", .keeps_stride_order = true, .cuts = true},
      {.name = "aten::concat", .synonym_of = "aten::cat"},
      {.name = "aten::concatenate", .synonym_of = "aten::cat"},
      {.name = "aten::embedding", .backward_ignores_result = true, .result = {.dtypes = {ResultDtype::kFirst}}},
      {.name = "aten::embedding_bag", .results = Sharing::kFresh, .result = {.dtypes = {ResultDtype::kFirst}, .sizes = R"(
def sizes(weight: List[int], indices: List[int], offsets: List[int], scale_grad_by_freq: bool, mode: int, sparse: bool,
          per_sample_weights: Optional[List[int]], include_last_offset: bool):
    return [offsets[0] - 1 if include_last_offset else offsets[0], weight[1]]
)"}},
      {.name = "aten::index_add", .result = {.dtypes = {ResultDtype::kFirst}, .keeps_sizes = true}},
      {.name = "aten::index_copy", .result = {.dtypes = {ResultDtype::kFirst}, .keeps_sizes = true}},
      {.name = "aten::index_fill", .result = {.dtypes = {ResultDtype::kFirst}, .keeps_sizes = true}},
      {.name = "aten::index_put", .autocast = Autocast::kWidest},
      {.name = "aten::index_select", .backward_ignores_result = true, .result = {.dtypes = {ResultDtype::kFirst}}},
      {.name = "aten::_no_grad_embedding_renorm_", .written = {"weight"}, .results = Sharing::kShared},
      {.name = "aten::one_hot", .results = Sharing::kFresh},
      {.name = "aten::row_stack", .synonym_of = "aten::vstack"},
      {.name = "aten::scatter", .result = {.keeps_sizes = true}},
      {.name = "aten::scatter_add", .result = {.keeps_sizes = true}},
      {.name = "aten::split", .keeps_stride_order = true, .cuts = true},
      {.name = "aten::split_with_sizes", .keeps_stride_order = true, .cuts = true},
      {.name = "aten::stack",
       .opcode = Opcode::kStack,
       .results = Sharing::kFresh,
       .backward_ignores_result = true,
       .autocast = Autocast::kWidest},
      {.name = "aten::tensor_split", .cuts = true},
      {.name = "aten::unbind", .opcode = Opcode::kUnbind, .cuts = true},
      {.name = "aten::unsafe_chunk", .cuts = true},
      {.name = "aten::_unsafe_masked_index", .written = {"self", "mask", "indices"}},
      {.name = "aten::_unsafe_masked_index_put_accumulate", .written = {"self", "mask", "indices", "values"}},
      {.name = "aten::unsafe_split", .cuts = true},
      {.name = "aten::unsafe_split_with_sizes", .cuts = true},
  };
  return rows;
}

}  // namespace sconce
