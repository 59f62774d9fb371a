// Values of elements that threads keep from pass to pass.
#pragma once

#include "fusion/program/kernel_program.h"
#include "fusion/program/schedule.h"

#include <cstdint>
#include <vector>

namespace sconce {

// Returns the instructions whose values more than one pass over a row reads: those of the schedule's buffers, and what is
// loaded, as numbers that can be computed with. Ascending.
std::vector<uint32_t> kept_values(const KernelProgram& program, const Schedule& schedule);

}  // namespace sconce
