#include "fusion/cuda/grid_arguments.h"

#include "fusion/cuda/grids.h"
#include "fusion/cuda/reciprocal.h"
#include "fusion/program/schedule.h"

#include <algorithm>
#include <bit>
#include <limits>

namespace sconce {
namespace {

constexpr int64_t kBytesOfAccess = 16;  // the most that a thread loads at once
constexpr int64_t kElementsOfLane = 4;  // that are worth another thread in rows longer than a warp
constexpr int64_t kBlocksOfMultiprocessor = 32;
constexpr uint32_t kThreadsOfLargeBlock = 1024;
constexpr int64_t kMaxTrips = 4;    // more would make a long text
constexpr int64_t kRegisters = 64;  // of a thread, for values that it keeps
constexpr int64_t kRegistersOfLargeBlock = 24;
constexpr size_t kSharedBytesOfSmallBlock = 48 * 1024;  // of more, a multiprocessor has few blocks at a time

int64_t power_of_two_from(int64_t number) {
  return static_cast<int64_t>(std::bit_ceil(static_cast<uint64_t>(std::max<int64_t>(number, 1))));
}

int64_t quotient_rounded_up(int64_t a, int64_t b) { return (a + b - 1) / b; }

// Returns the dimensions without those of one element on the outside.
uint32_t dims_of(const Iteration& iteration) {
  const auto first =
      std::find_if(iteration.sizes.begin(), iteration.sizes.end() - 1, [](int64_t size) { return size != 1; });
  return static_cast<uint32_t>(iteration.sizes.end() - first);
}

int64_t rows_of(const Iteration& iteration) {
  return iteration.elements() / std::max<int64_t>(iteration.sizes.back() * iteration.segments, 1);
}

uint32_t vector_of(const KernelProgram& program, const Iteration& iteration, std::span<void* const> first, uint32_t dims) {
  if (program.order != LoopOrder::kRows) {
    return 1;
  }
  // Grids of elements look at addresses themselves, and take what is left at the end of one row one by one.
  const bool has_reductions = program.has_reductions();
  const bool has_rest = !has_reductions && dims == 1;
  int64_t vector = kBytesOfAccess;
  bool has_neighbors = false;
  for (size_t k = 0; k < first.size(); ++k) {
    if (program.access_of_operand(k) != Access::kElements) {
      continue;
    }
    has_neighbors = true;
    const auto bytes = static_cast<int64_t>(c10::elementSize(program.type_of_operand(k)));
    vector = std::min(vector, kBytesOfAccess / bytes);
    const auto is_aligned = [&](int64_t place) { return place % (vector * bytes) == 0; };
    const auto strides = std::span(iteration.strides[k]).last(dims);  // the last one is that of neighbors
    while (vector > 1 && !((has_rest || iteration.sizes.back() % vector == 0) &&
                           (!has_reductions || is_aligned(reinterpret_cast<intptr_t>(first[k]))) &&
                           std::all_of(strides.begin(), strides.end() - 1, is_aligned))) {
      vector /= 2;
    }
  }
  return has_neighbors ? static_cast<uint32_t>(vector) : 1;
}

int64_t length_of_row(const Iteration& iteration) { return iteration.sizes.back() * iteration.segments; }

// Returns how many threads share a row.
uint32_t lanes_of(const KernelProgram& program, const Iteration& iteration, const GridForm& form) {
  const int64_t length = length_of_row(iteration);
  if (program.order == LoopOrder::kColumns) {
    return static_cast<uint32_t>(
        std::min<int64_t>(power_of_two_from(length / kElementsOfLane), form.threads / kThreadsOfWarp));
  }
  const int64_t lanes = power_of_two_from(quotient_rounded_up(length, form.vector));
  return static_cast<uint32_t>(lanes <= kThreadsOfWarp ? lanes
                                                       : std::clamp<int64_t>(lanes / kElementsOfLane, kThreadsOfWarp,
                                                                             static_cast<int64_t>(form.threads)));
}

// Returns what a block needs for rows of this length.
size_t shared_bytes_of(const GridProgram& grid, const Iteration& iteration) {
  return grid.shared_bytes + grid.shared_bytes_of_element * static_cast<size_t>(length_of_row(iteration));
}

// Lets threads keep values that several passes use in registers. Returns false if they would be too many.
bool keep_in_registers(GridForm& form, const KernelProgram& program, const Iteration& iteration, size_t kept) {
  GridForm with_trips = form;
  for (const uint32_t threads : {form.threads, kThreadsOfLargeBlock}) {
    with_trips.threads = threads;
    with_trips.lanes = lanes_of(program, iteration, with_trips);
    const int64_t trips =
        quotient_rounded_up(length_of_row(iteration), static_cast<int64_t>(with_trips.lanes) * form.vector);
    const int64_t registers = trips * form.vector * static_cast<int64_t>(kept);
    if (trips <= kMaxTrips && registers <= (threads == kThreadsOfLargeBlock ? kRegistersOfLargeBlock : kRegisters)) {
      form = with_trips;
      form.trips = static_cast<uint32_t>(trips);
      return true;
    }
  }
  return false;
}

// Lets threads share rows, and keep values: of short rows in registers, of longer ones in the shared memory of large blocks,
// if that is large enough.
void share_rows(GridForm& form, const KernelProgram& program, const Iteration& iteration, const DeviceLimits& limits) {
  form.lanes = lanes_of(program, iteration, form);
  const Schedule schedule = schedule_of(program);
  const size_t kept = kept_values(program, schedule).size();
  if (kept != 0 && limits.block_threads >= kThreadsOfLargeBlock && keep_in_registers(form, program, iteration, kept)) {
    return;
  }
  if (schedule.buffers.empty()) {
    return;
  }
  GridForm with_buffers = form;
  with_buffers.has_buffers = true;
  size_t bytes = shared_bytes_of(grid_program(program, with_buffers), iteration);
  if (bytes > kSharedBytesOfSmallBlock && limits.block_threads >= kThreadsOfLargeBlock) {
    with_buffers.threads = kThreadsOfLargeBlock;
    with_buffers.lanes = lanes_of(program, iteration, with_buffers);
    bytes = shared_bytes_of(grid_program(program, with_buffers), iteration);
  }
  if (bytes <= limits.shared_bytes) {
    form = with_buffers;
  }
}

// Returns whether some offset, or the number of a thread, does not fit 32 bits.
bool is_wide(const Iteration& iteration, int64_t threads) {
  int64_t largest = iteration.elements() + threads;
  for (size_t k = 0; k < iteration.strides.size(); ++k) {
    int64_t reach = (iteration.segments - 1) * std::abs(iteration.segment_strides[k]) + kBytesOfAccess;
    for (size_t dim = 0; dim < iteration.sizes.size(); ++dim) {
      reach += (iteration.sizes[dim] - 1) * std::abs(iteration.strides[k][dim]);
    }
    largest = std::max(largest, reach);
  }
  return largest > std::numeric_limits<int32_t>::max();
}

}  // namespace

GridForm choose_form(const KernelProgram& program, const Iteration& iteration, std::span<void* const> first,
                     const DeviceLimits& limits) {
  GridForm form;
  form.dims = dims_of(iteration);
  form.vector = vector_of(program, iteration, first, form.dims);
  form.has_segments = program.order != LoopOrder::kRows && iteration.segments > 1;
  if (program.has_reductions()) {
    share_rows(form, program, iteration, limits);
  }
  const int64_t threads =
      static_cast<int64_t>(form.threads) * form.vector * limits.multiprocessors * kBlocksOfMultiprocessor;
  form.is_wide = is_wide(iteration, threads);
  return form;
}

std::vector<int64_t> words_of(const GridForm& form, const Iteration& iteration) {
  const size_t skipped = iteration.sizes.size() - form.dims;
  std::vector<int64_t> words(iteration.sizes.begin() + static_cast<ptrdiff_t>(skipped), iteration.sizes.end());
  for (size_t dim = skipped; dim < iteration.sizes.size(); ++dim) {
    for (const std::vector<int64_t>& strides : iteration.strides) {
      words.push_back(strides[dim]);
    }
  }
  if (form.has_segments) {
    words.push_back(iteration.segments);
    words.insert(words.end(), iteration.segment_strides.begin(), iteration.segment_strides.end());
  }
  for (size_t dim = skipped + first_divided_dim(form); dim < iteration.sizes.size(); ++dim) {
    const Reciprocal reciprocal = reciprocal_of(iteration.sizes[dim]);
    words.push_back(static_cast<int32_t>(reciprocal.multiplier));  // the same bits
    words.push_back(reciprocal.shift);
  }
  return words;
}

int64_t blocks_of_reductions(const Iteration& iteration) {
  const int64_t length = length_of_row(iteration);
  const GridForm form;
  const int64_t lanes =
      std::clamp<int64_t>(power_of_two_from(length / kBytesOfAccess), 1, static_cast<int64_t>(form.threads));
  const int64_t rows_of_block = iteration.order == LoopOrder::kColumns ? kThreadsOfWarp : form.threads / lanes;
  return quotient_rounded_up(rows_of(iteration), rows_of_block);
}

LaunchShape launch_shape(const GridProgram& grid, const Iteration& iteration, const DeviceLimits& limits) {
  const GridForm& form = grid.form;
  const int64_t most = static_cast<int64_t>(limits.multiprocessors) * kBlocksOfMultiprocessor;
  const int64_t blocks = form.lanes == 0
                             ? quotient_rounded_up(iteration.elements(), static_cast<int64_t>(form.threads) * form.vector)
                             : quotient_rounded_up(rows_of(iteration), form.threads / form.lanes);
  LaunchShape shape;
  shape.grid[0] = static_cast<uint32_t>(std::clamp<int64_t>(blocks, 1, most));
  shape.block[0] = form.threads;
  shape.shared_bytes = static_cast<uint32_t>(shared_bytes_of(grid, iteration));
  return shape;
}

GridProgram grid_program(const KernelProgram& program, const GridForm& form) {
  return form.lanes == 0 ? grid_of_elements(program, form) : grid_of_rows(program, form);
}

}  // namespace sconce
