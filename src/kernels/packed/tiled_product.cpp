#include "kernels/packed/tiled_product.h"

#include "kernels/loops/forks.h"

#include <ATen/Parallel.h>

#include <algorithm>
#include <atomic>
#include <memory>
#include <utility>

namespace sconce {
namespace {

// The elements of a column that are multiplied before those of the next panel are: so many of all rows of a block, and of
// the panel, stay in the cache.
constexpr int64_t kMaxDepth = 768;
// The part of the cache that the rows of a block may take.
constexpr int64_t kMaxElements = 96 * 1024;
constexpr int64_t kMinRows = 192;

int64_t divide_up(int64_t number, int64_t by) { return (number + by - 1) / by; }

// Part `i` of `parts` alike parts of a range.
std::pair<int64_t, int64_t> part_of(int64_t size, int64_t parts, int64_t i) {
  return {size * i / parts, size * (i + 1) / parts};
}

// How the work is cut: into parts of the rows times parts of the panels.
struct Cut {
  int64_t rows = 1;
  int64_t panels = 1;
};

// Returns the parts for several threads, which have `units` of the rows. Threads that share the rows read all weights, and
// of what they read and write beside them, most is in their own caches.
Cut cut_for(int64_t threads, int64_t units, int64_t panels) {
  if (units >= threads) {
    return {.rows = threads * std::clamp<int64_t>(units / threads, 1, 4)};
  }
  return {.panels = std::min(panels, threads * 8)};
}

// Hands out parts to threads. A thread takes the parts of its own share first, then parts that other threads have not begun.
// Its shares of consecutive layers are about the same rows, which are still in its cache.
class WorkShares {
 public:
  WorkShares(int64_t count, int64_t parts) : count_(count), parts_(parts), taken_(new Taken[static_cast<size_t>(count)]) {}

  int64_t count() const { return count_; }
  template <typename Function>
  void take(int64_t share, const Function& function) {
    for (int64_t i = 0; i < count_; ++i) {
      const int64_t of = (share + i) % count_;
      const auto [first, last] = part_of(parts_, count_, of);
      std::atomic<int64_t>& taken = taken_[static_cast<size_t>(of)].parts;
      const auto next = [begin = first, &taken] { return begin + taken.fetch_add(1, std::memory_order_relaxed); };
      for (int64_t part = next(); part < last; part = next()) {
        function(part);
      }
    }
  }

 private:
  struct alignas(64) Taken {
    std::atomic<int64_t> parts = 0;
  };
  const int64_t count_;
  const int64_t parts_;
  const std::unique_ptr<Taken[]> taken_;
};

}  // namespace

struct TiledProduct::Block {
  const float* packed;
  const TiledRows& all_rows;
  float* out;
  const float* bounds;
  RowsFunction then;  // is called with the rows of each block; null if blocks have not all panels
  bool is_vector;     // there is one row in all
  Part part;
  const float* const* rows = nullptr;
};

TiledProduct::TiledProduct(Panels panels, std::vector<int64_t> offsets, int64_t depth)
    : panels_(std::move(panels)), offsets_(std::move(offsets)), runs_(panels_.depth() / depth), depth_(depth) {}

void TiledProduct::run(const float* packed, const TiledRows& rows, float* out, const float* bounds, const RowsFunction& then,
                       bool adds) const {
  const auto panels = static_cast<int64_t>(panels_.panels().size());
  const Block all = {.packed = packed,
                     .all_rows = rows,
                     .out = out,
                     .bounds = bounds,
                     .then = then,
                     .is_vector = rows.count == 1,
                     .part = {.last_row = rows.count, .last_panel = panels, .adds = adds}};
  // A single row waits for the memory of its weights.
  const int64_t work = std::max<int64_t>(rows.count, 4) * panels_.elements();
  const int64_t threads =
      work < kMultiplicationsWorthAFork || at::in_parallel_region() ? 1 : static_cast<int64_t>(at::get_num_threads());
  if (threads == 1) {
    run_block(all);
    return;
  }
  const int64_t units = rows.count / rows.unit;
  constexpr int64_t kRowsOfUnit = 24;  // a few tiles: each part reads all weights
  const Cut cut = cut_for(threads, rows.count / std::max(rows.unit, kRowsOfUnit), panels);
  const int64_t parts = cut.rows * cut.panels;
  WorkShares shares(std::min(threads, parts), parts);
  at::parallel_for(0, shares.count(), 1, [&](int64_t begin, int64_t end) {
    for (int64_t share = begin; share < end; ++share) {
      shares.take(share, [&](int64_t i) {
        Block block = all;
        if (cut.panels > 1) {
          block.then = nullptr;
        }
        std::tie(block.part.first_row, block.part.last_row) = part_of(units, cut.rows, i % cut.rows);
        block.part.first_row *= rows.unit;
        block.part.last_row *= rows.unit;
        std::tie(block.part.first_panel, block.part.last_panel) = part_of(panels, cut.panels, i / cut.rows);
        run_block(block);
      });
    }
  });
  if (then && cut.panels > 1) {
    fork_by_elements(rows.count, panels_.columns(), then);
  }
}

void TiledProduct::run_part(const float* packed, const TiledRows& rows, float* out, const Part& part,
                            const RowsFunction& then) const {
  run_block({.packed = packed,
             .all_rows = rows,
             .out = out,
             .bounds = nullptr,
             .then = then,
             .is_vector = rows.count == 1,
             .part = part});
}

void TiledProduct::run_block(const Block& all) const {
  static thread_local std::vector<const float*> found;
  const TiledRows& rows = all.all_rows;
  const int64_t of_row = std::max<int64_t>(1, std::min(rows.elements, kMaxDepth));
  const int64_t units = (all.part.last_row - all.part.first_row) / rows.unit;
  // The result of a block stays in the cache, too, unless its weights would be read for few rows.
  const int64_t most = std::max(kMinRows, kMaxElements / (of_row + panels_.columns()));
  const int64_t parts = divide_up(units * rows.unit, most);
  for (int64_t k = 0; k < std::min(parts, units); ++k) {
    Block block = all;
    const auto [first, last] = part_of(units, std::min(parts, units), k);
    block.part.first_row = all.part.first_row + first * rows.unit;
    block.part.last_row = all.part.first_row + last * rows.unit;
    found.resize(static_cast<size_t>(block.part.last_row - block.part.first_row));
    rows.find(block.part.first_row, block.part.last_row, found.data());
    block.rows = found.data();
    // All panels for some of the depth, and then for more of it.
    const int64_t depth_parts = divide_up(depth_, kMaxDepth);
    const int64_t runs_together = depth_parts > 1 ? 1 : std::max<int64_t>(1, kMaxDepth / depth_);
    for (int64_t run = 0; run < runs_; run += runs_together) {
      for (int64_t i = 0; i < depth_parts; ++i) {
        const auto [first_depth, last_depth] = part_of(depth_, depth_parts, i);
        for (int64_t p = block.part.first_panel; p < block.part.last_panel; ++p) {
          const Panels::Panel& panel = panels_.panels()[static_cast<size_t>(p)];
          const Panels::Panel& next = panels_.panels()[static_cast<size_t>(p + 1 < block.part.last_panel ? p + 1 : p)];
          const int64_t begin = (run * depth_ + first_depth) * next.vectors * panels_.kernels().lanes;
          run_panel(block, panel, block.packed + next.begin + begin, run, std::min(runs_together, runs_ - run), first_depth,
                    last_depth - first_depth);
        }
      }
    }
    if (all.then) {
      all.then(block.part.first_row, block.part.last_row);
    }
  }
}

void TiledProduct::run_panel(const Block& block, const Panels::Panel& panel, const float* next, int64_t first_run,
                             int64_t runs, int64_t first, int64_t depth) const {
  const TileKernels& kernels = panels_.kernels();
  const int64_t width = panel.vectors * kernels.lanes;
  const int64_t* const offsets = offsets_.data() + panel.group * runs_ + first_run;
  const bool begins = first_run == 0 && first == 0;
  const bool ends = first_run + runs == runs_ && first + depth == depth_;
  int64_t shifted = offsets[0] + first;
  Tile tile{.offsets = first == 0 ? offsets : &shifted,
            .runs = runs,
            .depth = depth,
            .panel = block.packed + panel.begin + (first_run * depth_ + first) * width,
            .run_distance = depth_ * width,
            .out_distance = panels_.columns(),
            .last = static_cast<int>(panel.columns - (panel.vectors - 1) * kernels.lanes),
            .bias = begins && !block.part.adds ? block.packed + panel.bias : nullptr,
            .bounds = ends ? block.bounds : nullptr};
  const int64_t count = block.part.last_row - block.part.first_row;
  const int64_t tiles = divide_up(count, kernels.rows[panel.vectors - 1]);
  // The tiles prefetch the weights of the next panel, each a part of them: more at a time than memory brings would make the
  // loads wait.
  const int64_t line = 64 / static_cast<int64_t>(sizeof(float));
  const int64_t lines = divide_up(width, line);
  const bool is_first_alone = tiles < lines;
  const int64_t step = is_first_alone ? width : divide_up(lines * line, tiles);  // of one step of depth, in elements
  const int64_t prefetching = is_first_alone ? 1 : divide_up(lines * line, step);
  const int64_t of_tile = count / tiles;
  const int64_t larger = count % tiles;  // have one row more
  tile.rows = block.rows;
  tile.out = block.out + block.part.first_row * panels_.columns() + panel.column;
  for (int64_t i = 0; i < tiles; ++i) {
    const int64_t rows = i < larger ? of_tile + 1 : of_tile;
    const bool prefetches = i < prefetching;
    tile.ahead = prefetches ? next + i * runs * depth * step : tile.panel;
    tile.ahead_step = prefetches ? step : 0;
    tile.ahead_distance = prefetches && is_first_alone ? line : 0;
    if (block.is_vector && begins && ends && !block.part.adds) {
      kernels.compute_vector[panel.vectors - 1](tile);
    } else {
      kernels.compute[panel.vectors - 1][rows - 1](tile);
    }
    tile.rows += rows;
    tile.out += rows * panels_.columns();
  }
}

}  // namespace sconce
