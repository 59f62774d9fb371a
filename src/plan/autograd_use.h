// AutogradUse: what autograd has to do with a run.
#pragma once

#include <cstdint>

namespace sconce {

// Which steps of a run autograd may record.
enum class AutogradUse : uint8_t {
  kNone,   // none: nothing that the run reads requires a gradient, or grad mode is off
  kAsked,  // those whose operands require a gradient when they run
  kAll,    // any, as far as the run knows
};

}  // namespace sconce
