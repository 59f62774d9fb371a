#include "fusion/cpu/vector_writer.h"
#include "fusion/program/cost_model.h"

#include <algorithm>

namespace sconce {
namespace {

// Rows in tiles: of several vectors where values are cheap, then of one, then of what is left, under a mask. All elements of
// a tile's rows are reduced in registers. With tiles of `many` vectors:
//
//   for (r = 0; r + many * lanes <= rows; r += many * lanes)  a tile of `many` vectors
//   for (; r + lanes <= rows; r += lanes)                     a tile of one vector
//   if (r < rows)                                             the same under a mask
class ColumnLoops : public VectorWriter {
 public:
  ColumnLoops(const KernelProgram& program, size_t lanes) : VectorWriter(program, lanes) {}

  LoopProgram write() {
    const size_t many = vectors_of_tile();
    for_full_vectors(row_, many, rows_, [&] { write_tile(many); });
    if (many > 1) {
      for_full_vectors(row_, 1, rows_, [&] { write_tile(1); });
    }
    for_rest(row_, rows_, [&] { write_tile(1); });
    return take();
  }

 private:
  // Vectors of one element share cache lines and loop counters; of expensive values, the code would be long.
  size_t vectors_of_tile() const {
    const auto reductions = std::ranges::count_if(program().code, [](const auto& each) { return is_reduction(each.op); });
    const bool is_cheap = std::ranges::all_of(schedule_.is_cheap, [](bool each) { return each; });
    return is_cheap && reductions <= 2 ? cost_model::kUnrolledVectors : 1;
  }

  void write_tile(size_t vectors) {
    tile_.assign(vectors, first_);
    for (size_t v = 0; v < vectors; ++v) {
      tile_[v].index = after_vectors(row_, v);
      write_row_values(tile_[v], 0);
    }
    for (uint32_t pass = 0; pass < schedule_.passes; ++pass) {
      write_pass(pass);
    }
  }

  // Writes a pass over the elements of the tile's rows, in blocks:
  //
  //   all = last = start; n = 1                              n counts blocks of all segments
  //   for (s = 0; s < segments; ++s)
  //     for (b = 0; b < elements; b += kBlockOfColumn, ++n)
  //       reduction = start
  //       for each element of the block: reduction = combined(reduction, element); store results
  //       last = combined(last, reduction)
  //       if (n % kBlocksOfSum == 0): all = combined(all, last); last = start
  //   result = combined(all, last)
  //
  // So a sum is a sum of sums of sums: as precise as LibTorch's cascades. One loop runs over the blocks of all segments:
  // after the last block of a segment, b begins again and s moves on.
  void write_pass(uint32_t pass) {
    const LoopVariable s = counter();
    const LoopVariable b = counter();
    const LoopVariable n = counter(1);
    const Reductions start = begin_reductions(pass, 1);
    const Reductions all = begin_reductions(pass, tile_.size());
    const Reductions last = begin_reductions(pass, tile_.size());
    const auto choose = [&](LoopVariable condition, LoopVariable to, LoopVariable a, LoopVariable otherwise) {
      assign(to, element(LoopOp::kChoose, loops_.types[to], {condition, a, otherwise}));
    };
    begin_loop();
    const LoopVariable left = subtract(elements_, b);
    const LoopVariable most = constant(cost_model::kBlockOfColumn);
    const LoopVariable is_last = less_or_equal(left, most);
    const LoopVariable count = index(LoopOp::kChoose, {is_last, left, most});
    const Reductions reduced = write_block(pass, s, b, count);
    const LoopVariable is_full = less(index(LoopOp::kRemainder, {n, constant(cost_model::kBlocksOfSum)}), constant(1));
    for (size_t i = 0; i < all.size(); ++i) {
      for (size_t v = 0; v < tile_.size(); ++v) {
        const LoopVariable sum = combined(all[i].instruction, last[i].parts[v], reduced[i].parts[v]);
        const LoopVariable sum_of_all = combined(all[i].instruction, all[i].parts[v], sum);
        choose(is_full, all[i].parts[v], sum_of_all, all[i].parts[v]);
        choose(is_full, last[i].parts[v], start[i].parts[0], sum);
      }
    }
    assign(n, add(n, constant(1)));
    choose(is_last, b, constant(0), add(b, count));
    choose(is_last, s, add(s, constant(1)), s);
    end_loop(less(s, segments_));
    for (size_t v = 0; v < tile_.size(); ++v) {
      for (size_t i = 0; i < all.size(); ++i) {
        tile_[v].values[all[i].instruction] = {combined(all[i].instruction, all[i].parts[v], last[i].parts[v])};
      }
      write_row_values(tile_[v], pass + 1);
    }
  }

  // Returns what `count` elements from element b of segment s on have, by vector of the tile.
  Reductions write_block(uint32_t pass, LoopVariable s, LoopVariable b, LoopVariable count) {
    Variables at = first_.places;
    Variables moving;
    Variables steps;
    for (size_t k = 0; k < at.size(); ++k) {
      // Columns have no buffers (schedule.cpp): what is no input is an output.
      const bool is_of_row = k < program().inputs.size() ? program().is_of_row(program().inputs[k])
                                                         : program().access_of_operand(k) == Access::kOne;
      if (!is_of_row) {
        at[k] = add(at[k], add(multiply(s, segment_steps_[k]), multiply(b, element_steps_[k])));
        moving.push_back(at[k]);
        steps.push_back(element_steps_[k]);
      }
    }
    const LoopVariable i = counter();
    const Reductions reduced = begin_reductions(pass, tile_.size());
    begin_loop();
    for (size_t v = 0; v < tile_.size(); ++v) {
      Vector vector = tile_[v];
      vector.places = at;
      vector.pass = pass;
      write_elements(vector, reduced, v);
    }
    end_turns(i, count, moving, steps);
    return reduced;
  }

  std::vector<Vector> tile_;
};

}  // namespace

LoopProgram column_loops(const KernelProgram& program, size_t lanes) { return ColumnLoops(program, lanes).write(); }

}  // namespace sconce
