// TiledProduct: the product of some rows and packed weights, on LibTorch's intra-op threads.
#pragma once

#include "kernels/packed/panels.h"
#include "plan/prepared/kernel.h"

#include <c10/util/FunctionRef.h>

#include <cstdint>
#include <vector>

namespace sconce {

// The rows of the left operand. `find` writes where each of some rows begins. It is called on any thread, and the rows that
// it found stay where they are until the next call on that thread.
struct TiledRows {
  int64_t count = 0;
  int64_t unit = 1;      // rows that `find` takes together: it is called for a whole number of them
  int64_t elements = 0;  // that one row adds to what is read
  c10::function_ref<void(int64_t first, int64_t last, const float** rows)> find;
};

class TiledProduct {
 public:
  TiledProduct() = default;
  // `offsets`: of the runs of each group after the other, from the first element of a row; see Tile. A run has `depth`
  // elements.
  TiledProduct(Panels panels, std::vector<int64_t> offsets, int64_t depth);

  const Panels& panels() const { return panels_; }
  // Computes out (rows.count x panels.columns(), dense). The bits do not depend on the number
  // of threads. `bounds`: see Tile.
  // `then`: is called with rows of the result that are complete, on any thread; may be null.
  // `adds`: to what `out` holds; biases are left out then.
  void run(const float* packed, const TiledRows& rows, float* out, const float* bounds, const RowsFunction& then = nullptr,
           bool adds = false) const;

  // Some rows times some panels. `adds`: see `run`.
  struct Part {
    int64_t first_row = 0;
    int64_t last_row = 0;
    int64_t first_panel = 0;
    int64_t last_panel = 0;
    bool adds = false;
  };
  // Computes a part of `out` on this thread. `then`: requires all panels.
  void run_part(const float* packed, const TiledRows& rows, float* out, const Part& part, const RowsFunction& then) const;

 private:
  struct Block;
  void run_block(const Block& block) const;
  void run_panel(const Block& block, const Panels::Panel& panel, const float* next, int64_t first_run, int64_t runs,
                 int64_t first, int64_t depth) const;

  Panels panels_;
  std::vector<int64_t> offsets_;
  int64_t runs_ = 0;
  int64_t depth_ = 0;
};

}  // namespace sconce
