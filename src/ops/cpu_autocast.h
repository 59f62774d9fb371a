// How the caller's autocast treats an operator on the CPU: the dispatcher's autocast, not TorchScript's (OpRow::autocast).
#pragma once

#include <cstdint>

namespace sconce {

struct Op;

enum class CpuAutocast : uint8_t {
  kNothing,   // it and the operators that it calls run as without autocast
  kReduced,   // its tensors are cast to autocast's dtype: those on the CPU that are floating and not double
  kFull,      // likewise, to float32
  kPromoted,  // likewise, to float32 if one of them is float32, else to autocast's dtype
  kUnknown    // not known, or it calls operators whose operands are cast: it must run with autocast on
};

// LibTorch 2.11's registry says which operators have an autocast kernel for the CPU. It does not say what the kernel does:
// that is in tables here. Other operators call operators that may have one, because autocast stays on in their kernels.
// `op`: with all fields but `cpu_autocast`.
CpuAutocast cpu_autocast_of(const Op& op);

}  // namespace sconce
