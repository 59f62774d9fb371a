// The loops for one kind of vectors of the processor.
#pragma once

#include "kernels/loops/bag_sums.h"
#include "kernels/loops/direct_loops.h"
#include "kernels/loops/recurrent_cells.h"
#include "kernels/loops/softmax_rows.h"
#include "kernels/loops/tiles.h"

namespace sconce {

struct VectorLoops {
  TileKernels tiles;
  SoftmaxRows softmax_rows;
  RecurrentCells recurrent_cells;
  BagSums bag_sums;
  const DirectKernels* direct;  // null: there are none
};

}  // namespace sconce
