// How a grid is launched for operands of given sizes and strides.
#pragma once

#include "fusion/cuda/grid_program.h"
#include "fusion/program/iteration.h"
#include "plan/device/device.h"

#include <cstdint>
#include <span>
#include <vector>

namespace sconce {

// Threads that shuffle values among each other. There are no kernels for devices with other warps.
inline constexpr uint32_t kThreadsOfWarp = 32;

// Chooses the form for these sizes and addresses: the first elements of the operands, inputs before outputs. Grids without
// reductions serve any addresses.
GridForm choose_form(const KernelProgram& program, const Iteration& iteration, std::span<void* const> first,
                     const DeviceLimits& limits);
// Returns the words that the kernel reads: sizes of the form's dimensions, the outermost first; strides in bytes by
// dimension, then by operand; with segments, their number and their strides; the multipliers and shifts of reciprocals of
// the sizes from `first_divided_dim` on.
std::vector<int64_t> words_of(const GridForm& form, const Iteration& iteration);
// Returns how many blocks work at once where rows are reduced, and nothing else is computed.
int64_t blocks_of_reductions(const Iteration& iteration);

LaunchShape launch_shape(const GridProgram& grid, const Iteration& iteration, const DeviceLimits& limits);

}  // namespace sconce
