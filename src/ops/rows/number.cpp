// Numbers and strings, and which object a value is.
#include "ops/rows.h"

namespace sconce {

std::span<const OpRow> number_rows() {
  static const std::vector<OpRow> rows = {
      {.name = "aten::center", .grows_by_number = true},
      {.name = "aten::divmod", .opcode = Opcode::kDivMod, .division = IntegerDivision{.traps_on_zero = false}},
      {.name = "aten::expandtabs", .grows_by_number = true},
      {.name = "aten::floordiv", .opcode = Opcode::kFloorDivideNumbers, .division = IntegerDivision{.traps_on_zero = false}},
      {.name = "aten::hash", .reads_identity = true},
      {.name = "aten::Int", .opcode = Opcode::kInt},
      {.name = "aten::Float", .opcode = Opcode::kFloat},
      {.name = "aten::__is__", .opcode = Opcode::kIs, .raises = Raises::kNever, .reads_identity = true},
      {.name = "aten::__isnot__", .opcode = Opcode::kIsNot, .raises = Raises::kNever, .reads_identity = true},
      {.name = "aten::ljust", .grows_by_number = true},
      {.name = "prim::max", .opcode = Opcode::kMax},
      {.name = "prim::min", .opcode = Opcode::kMin},
      {.name = "aten::__not__", .opcode = Opcode::kNot, .raises = Raises::kNever},
      {.name = "prim::ReductionSizes", .written = {"size"}},
      {.name = "aten::rjust", .grows_by_number = true},
      {.name = "aten::__round_to_zero_floordiv", .division = IntegerDivision{.traps_on_zero = true}},
      {.name = "prim::unchecked_unwrap_optional", .opcode = Opcode::kUnwrapOptional},
      {.name = "aten::_unwrap_optional", .opcode = Opcode::kUnwrapOptional},
      {.name = "aten::zfill", .grows_by_number = true},
  };
  return rows;
}

}  // namespace sconce
