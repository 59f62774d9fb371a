// Operators that are other names of an operator.
#pragma once

#include <ATen/core/symbol.h>

#include <optional>

namespace sconce {

// aten::multiply → aten::mul; nothing for an operator that goes by its own name.
std::optional<c10::Symbol> canonical_name(c10::Symbol kind);

}  // namespace sconce
