// The node kinds of the language itself. They have no schema: a row says all that analyses ask.
#include "ops/rows.h"

namespace sconce {

std::span<const OpRow> language_rows() {
  static const std::vector<OpRow> rows = {
      {.name = "prim::Constant", .opcode = Opcode::kConstant, .raises = Raises::kNever},
      {.name = "prim::If", .opcode = Opcode::kIf},
      {.name = "prim::Loop", .opcode = Opcode::kLoop},
      {.name = "prim::ListConstruct",
       .opcode = Opcode::kListConstruct,
       .raises = Raises::kNever,
       .moves_operands = true,
       .makes_container = true},
      {.name = "prim::ListUnpack",
       .opcode = Opcode::kListUnpack,
       .raises = Raises::kByForm,
       .moves_operands = true,
       .returns_existing = true,
       .keeps_stride_order = true},
      {.name = "prim::TupleConstruct", .opcode = Opcode::kTupleConstruct, .raises = Raises::kNever, .moves_operands = true},
      {.name = "prim::TupleUnpack",
       .opcode = Opcode::kTupleUnpack,
       .raises = Raises::kNever,
       .moves_operands = true,
       .returns_existing = true},
      {.name = "prim::TupleIndex", .opcode = Opcode::kTupleIndex, .moves_operands = true, .returns_existing = true},
      {.name = "prim::TupleSlice", .opcode = Opcode::kTupleSlice, .raises = Raises::kNever, .moves_operands = true},
      {.name = "prim::DictConstruct", .opcode = Opcode::kDictConstruct, .makes_container = true},
      {.name = "prim::GetAttr", .opcode = Opcode::kGetAttr, .raises = Raises::kNever, .returns_existing = true},
      {.name = "prim::SetAttr", .opcode = Opcode::kSetAttr, .effects = {.writes = true}},
      {.name = "prim::CreateObject", .opcode = Opcode::kCreateObject},
      {.name = "prim::CallMethod", .opcode = Opcode::kCallMethod, .effects = {.unknown = true}},
      {.name = "prim::CallFunction", .opcode = Opcode::kCallFunction, .effects = {.unknown = true}},
      {.name = "prim::isinstance", .opcode = Opcode::kIsInstance, .raises = Raises::kNever},
      {.name = "prim::unchecked_cast", .opcode = Opcode::kUncheckedCast, .moves_operands = true, .returns_existing = true},
      {.name = "prim::Uninitialized", .opcode = Opcode::kUninitialized},
      {.name = "prim::Enter", .opcode = Opcode::kEnter, .effects = {.unknown = true}},
      {.name = "prim::Exit", .opcode = Opcode::kExit, .effects = {.unknown = true}},
      {.name = "prim::fork", .opcode = Opcode::kFork, .effects = {.unknown = true}},
      {.name = "prim::awaitable", .opcode = Opcode::kAwaitable, .effects = {.unknown = true}},
      {.name = "prim::GradOf", .opcode = Opcode::kGradOf},
      {.name = "prim::ConstantChunk", .opcode = Opcode::kConstantChunk},
      {.name = "prim::Param", .opcode = Opcode::kParam},
      {.name = "prim::Return", .opcode = Opcode::kReturn},
      {.name = "sconce::kernel", .opcode = Opcode::kKernel},
  };
  return rows;
}

}  // namespace sconce
