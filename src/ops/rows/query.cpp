// Operators that query a tensor: sizes, dtype, device.
#include "ops/rows.h"

namespace sconce {

std::span<const OpRow> query_rows() {
  static const std::vector<OpRow> rows = {
      {.name = "prim::device", .opcode = Opcode::kDevice, .raises = Raises::kNever, .reads = Reads::kMetadata},
      {.name = "aten::dim", .opcode = Opcode::kDim, .raises = Raises::kNever, .reads = Reads::kMetadata},
      {.name = "prim::dtype", .opcode = Opcode::kDtype, .raises = Raises::kNever, .reads = Reads::kMetadata},
      {.name = "aten::_has_compatible_shallow_copy_type", .reads = Reads::kMetadata},
      {.name = "aten::is_contiguous", .reads = Reads::kStridesOrVersion},
      {.name = "prim::is_cuda", .opcode = Opcode::kIsCuda},
      {.name = "aten::is_floating_point", .opcode = Opcode::kIsFloatingPoint, .reads = Reads::kMetadata},
      {.name = "prim::is_nested", .opcode = Opcode::kIsNested},
      {.name = "aten::is_same_size", .reads = Reads::kMetadata},
      {.name = "aten::is_set_to", .reads_identity = true},
      {.name = "prim::layout", .opcode = Opcode::kLayout, .raises = Raises::kNever, .reads = Reads::kMetadata},
      {.name = "aten::numel", .opcode = Opcode::kNumel, .reads = Reads::kMetadata},
      {.name = "prim::requires_grad", .opcode = Opcode::kRequiresGrad, .reads_beyond_form = true},
      {.name = "aten::size", .opcode = Opcode::kSize, .makes_container = true, .reads = Reads::kMetadata},
      {.name = "aten::stride", .reads = Reads::kStridesOrVersion},
      {.name = "aten::sym_numel", .reads = Reads::kMetadata},
      {.name = "aten::sym_size", .reads = Reads::kMetadata},
      {.name = "aten::sym_stride", .reads = Reads::kStridesOrVersion},
      {.name = "aten::_version", .reads_beyond_form = true, .reads = Reads::kStridesOrVersion},
  };
  return rows;
}

}  // namespace sconce
