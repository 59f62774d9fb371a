// Joins and cuts of tensors.
#include "ops/rows.h"

namespace sconce {

std::span<const OpRow> joining_rows() {
  static const std::vector<OpRow> rows = {
      {.name = "aten::cat",
       .opcode = Opcode::kCat,
       .raises = Raises::kByForm,
       .layout = Layout::kImages,
       .backward_ignores_result = true,
       .autocast = Autocast::kWidest},
      {.name = "aten::chunk", .keeps_stride_order = true, .cuts = true},
      {.name = "aten::concat", .synonym_of = "aten::cat"},
      {.name = "aten::concatenate", .synonym_of = "aten::cat"},
      {.name = "aten::row_stack", .synonym_of = "aten::vstack"},
      {.name = "aten::split", .keeps_stride_order = true, .cuts = true},
      {.name = "aten::split_with_sizes", .keeps_stride_order = true, .cuts = true},
      {.name = "aten::stack",
       .opcode = Opcode::kStack,
       .raises = Raises::kByForm,
       .results = Sharing::kFresh,
       .backward_ignores_result = true,
       .autocast = Autocast::kWidest},
      {.name = "aten::tensor_split", .cuts = true},
      {.name = "aten::unbind", .opcode = Opcode::kUnbind, .cuts = true},
      {.name = "aten::unsafe_chunk", .cuts = true},
      {.name = "aten::unsafe_split", .cuts = true},
      {.name = "aten::unsafe_split_with_sizes", .cuts = true},
  };
  return rows;
}

}  // namespace sconce
