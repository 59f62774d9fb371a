#include "fusion/cpu/kernel_loops.h"

#include "fusion/program/cost_model.h"

#include <ATen/Parallel.h>

#include <algorithm>
#include <numeric>

namespace sconce {
namespace {

// Runs all loops, but the dimension `split` only from `begin` to `end`.
void run_part(const KernelLoops& loops, KernelFunction function, const KernelCallArguments& arguments, size_t split,
              int64_t begin, int64_t end) {
  const Iteration& iteration = loops.iteration;
  const size_t rank = iteration.sizes.size();
  c10::SmallVector<int64_t, 8> sizes(iteration.sizes.begin(), iteration.sizes.end());
  sizes[split] = end - begin;
  c10::SmallVector<void*, 16> at = arguments.first;
  const auto advance = [&](size_t dim, int64_t by) {
    for (size_t k = 0; k < iteration.strides.size(); ++k) {
      at[k] = static_cast<char*>(at[k]) + iteration.strides[k][dim] * by;
    }
  };
  if (begin != 0) {
    advance(split, begin);
  }
  const auto words_of = [&](size_t bytes) {
    return (bytes * static_cast<size_t>(sizes.back() * iteration.segments) + 7) / 8;
  };
  c10::SmallVector<int64_t, 512> buffers;
  buffers.resize_for_overwrite(std::accumulate(loops.buffers.begin(), loops.buffers.end(), size_t{0},
                                               [&](size_t words, size_t bytes) { return words + words_of(bytes); }));
  int64_t* buffer = buffers.data();
  for (const size_t bytes : loops.buffers) {
    at.push_back(bytes == 0 ? nullptr : buffer);
    buffer += words_of(bytes);
  }
  c10::SmallVector<int64_t, 8> index(rank - 2, 0);
  while (true) {
    function(at.data(), loops.steps.data(), arguments.numbers.data(), sizes[rank - 2], sizes[rank - 1], iteration.segments);
    // The next place of the outer dimensions.
    size_t dim = rank - 2;
    while (dim > 0) {
      --dim;
      advance(dim, 1);
      if (++index[dim] < sizes[dim]) {
        break;
      }
      advance(dim, -sizes[dim]);
      index[dim] = 0;
      if (dim == 0) {
        return;
      }
    }
    if (rank == 2) {
      return;
    }
  }
}

// Returns the outermost dimension of several elements; the innermost if all have one.
size_t outermost(const std::vector<int64_t>& sizes) {
  const auto found = std::find_if(sizes.begin(), sizes.end() - 1, [](int64_t size) { return size != 1; });
  return static_cast<size_t>(found - sizes.begin());
}

}  // namespace

KernelLoops::KernelLoops(Iteration planned, std::vector<size_t> needed, size_t cost, bool reductions)
    : iteration(std::move(planned)),
      buffers(std::move(needed)),
      elements(iteration.elements()),
      grain(std::max<int64_t>(1, cost_model::kMinWorkOfThread / static_cast<int64_t>(cost))),
      reduces_rows(reductions) {
  const size_t count = iteration.strides.size() + buffers.size();
  const size_t rank = iteration.sizes.size();
  steps.resize(3 * count, 0);
  for (size_t k = 0; k < iteration.strides.size(); ++k) {
    steps[k] = iteration.strides[k][rank - 2];
    steps[count + k] = iteration.strides[k][rank - 1];
    steps[2 * count + k] = iteration.segment_strides[k];
  }
  for (size_t k = 0; k < buffers.size(); ++k) {
    steps[2 * count + iteration.strides.size() + k] = static_cast<int64_t>(buffers[k]) * iteration.sizes.back();
  }
}

bool KernelLoops::is_flat() const {
  return iteration.order == LoopOrder::kRows && iteration.sizes.size() == 2 && iteration.sizes[0] == 1 &&
         iteration.segments == 1 && buffers.empty() && !reduces_rows;
}

void KernelLoops::set_elements(int64_t count) {
  iteration.sizes.back() = count;
  elements = count;
}

std::optional<size_t> KernelLoops::row_dimension(size_t input, int64_t rows) const {
  const size_t dim = outermost(iteration.sizes);
  int64_t next = iteration.strides[input].back();
  for (size_t i = iteration.sizes.size(); i-- > 0 && iteration.order == LoopOrder::kRows && elements > 0;) {
    if (iteration.sizes[i] != 1 && iteration.strides[input][i] != next) {
      return std::nullopt;
    }
    next *= iteration.sizes[i];
  }
  const bool is_dense =
      iteration.order == LoopOrder::kRows && elements > 0 && next == elements * iteration.strides[input].back();
  const bool has_rows = !reduces_rows && buffers.empty() && iteration.segments == 1 && iteration.sizes[dim] % rows == 0;
  return is_dense && has_rows && iteration.strides[input].back() != 0 ? std::optional(dim) : std::nullopt;
}

void run_kernel_rows(const KernelLoops& loops, KernelFunction function, const KernelCallArguments& arguments, int64_t rows,
                     int64_t first, int64_t last) {
  const size_t dim = outermost(loops.iteration.sizes);
  const int64_t of_row = loops.iteration.sizes[dim] / rows;
  run_part(loops, function, arguments, dim, first * of_row, last * of_row);
}

void run_kernel(const KernelLoops& loops, KernelFunction function, const KernelCallArguments& arguments) {
  const std::vector<int64_t>& sizes = loops.iteration.sizes;
  if (loops.elements == 0) {
    return;
  }
  if (loops.elements < loops.grain) {
    if (sizes.size() == 2 && loops.buffers.empty()) {
      function(arguments.first.data(), loops.steps.data(), arguments.numbers.data(), sizes[0], sizes[1],
               loops.iteration.segments);
    } else {
      run_part(loops, function, arguments, 0, 0, sizes[0]);
    }
    return;
  }
  // Threads take parts of the outermost dimension, as products and convolutions do: each finds in its own cache what it has
  // written there. They take parts of the longest one if that is too short. A row that is reduced has to stay whole.
  const auto last = sizes.end() - (loops.reduces_rows ? 1 : 0);
  const int64_t enough = 8 * static_cast<int64_t>(at::get_num_threads());
  const auto outer = std::find_if(sizes.begin(), last, [enough](int64_t size) { return size >= enough; });
  const auto split = static_cast<size_t>((outer != last ? outer : std::max_element(sizes.begin(), last)) - sizes.begin());
  const int64_t each = loops.elements / sizes[split];
  at::parallel_for(0, sizes[split], std::max<int64_t>(1, loops.grain / each),
                   [&](int64_t begin, int64_t end) { run_part(loops, function, arguments, split, begin, end); });
}

}  // namespace sconce
