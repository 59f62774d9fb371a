// Operators that print, raise or wait, and those that read or change the state of the thread or process.
#include "ops/rows.h"

namespace sconce {

std::span<const OpRow> state_rows() {
  static const std::vector<OpRow> rows = {
      {.name = "prim::AddStatValue", .effects = {.external = true}},
      {.name = "prim::awaitable_wait", .effects = {.unknown = true}},
      {.name = "aten::backward", .differentiates = true},
      {.name = "aten::get_autocast_dtype", .reads_state = true},
      {.name = "aten::_get_tracing_state", .reads_state = true},
      {.name = "aten::grad", .differentiates = true},
      {.name = "aten::has_torch_function", .reads_state = true},
      {.name = "aten::is_autocast_cpu_enabled", .opcode = Opcode::kIsAutocastCpuEnabled, .reads_state = true},
      {.name = "aten::is_autocast_enabled", .opcode = Opcode::kIsAutocastEnabled, .reads_state = true},
      {.name = "aten::is_grad_enabled", .opcode = Opcode::kIsGradEnabled, .reads_state = true},
      {.name = "aten::is_leaf", .differentiates = true},
      {.name = "aten::is_scripting", .reads_state = true},
      {.name = "aten::manual_seed", .effects = {.state = true}},
      {.name = "aten::output_nr", .differentiates = true},
      {.name = "prim::Print", .effects = {.external = true}},
      {.name = "prim::RaiseException", .opcode = Opcode::kRaise, .effects = {.external = true}},
      {.name = "aten::requires_grad_", .opcode = Opcode::kRequiresGrad_},
      {.name = "aten::retain_grad", .differentiates = true},
      {.name = "aten::retains_grad", .differentiates = true},
      {.name = "aten::save", .effects = {.state = true}},
      {.name = "prim::TimePoint", .effects = {.external = true}},
      {.name = "aten::wait", .opcode = Opcode::kWait, .effects = {.unknown = true}},
      {.name = "aten::warn", .opcode = Opcode::kWarn, .effects = {.external = true}},
  };
  return rows;
}

}  // namespace sconce
