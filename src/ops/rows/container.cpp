// Lists and dicts.
#include "ops/rows.h"

namespace sconce {

std::span<const OpRow> container_rows() {
  static const std::vector<OpRow> rows = {
      {.name = "aten::add_", .overloads = {"t"}, .opcode = Opcode::kExtend},
      {.name = "aten::append", .opcode = Opcode::kAppend},
      {.name = "aten::clear", .opcode = Opcode::kClear},
      {.name = "aten::__contains__", .opcode = Opcode::kContains, .reads_identity = true},
      {.name = "aten::copy",
       .opcode = Opcode::kCopyContainer,
       .makes_container = true,
       .in_place = VariantMatch::kWithoutGradient},
      {.name = "aten::Delete", .opcode = Opcode::kDelete},
      {.name = "aten::dict", .opcode = Opcode::kMakeDict, .makes_container = true},
      {.name = "aten::extend", .opcode = Opcode::kExtend},
      {.name = "aten::get", .opcode = Opcode::kGetOrDefault},
      {.name = "aten::__getitem__", .opcode = Opcode::kGetItem, .returns_existing = true},
      {.name = "aten::insert", .opcode = Opcode::kInsert},
      {.name = "aten::items", .opcode = Opcode::kItems},
      {.name = "aten::keys", .opcode = Opcode::kKeys},
      {.name = "aten::len", .opcode = Opcode::kLength, .raises = Raises::kNever, .reads = Reads::kMetadata},
      {.name = "aten::list", .opcode = Opcode::kMakeList, .makes_container = true},
      {.name = "aten::pop", .opcode = Opcode::kPop},
      {.name = "aten::reverse", .opcode = Opcode::kReverse},
      {.name = "aten::_set_item", .opcode = Opcode::kSetItem},
      {.name = "aten::sorted", .opcode = Opcode::kSorted},
      {.name = "prim::tolist", .opcode = Opcode::kToList},
      {.name = "aten::values", .opcode = Opcode::kValues},
  };
  return rows;
}

}  // namespace sconce
