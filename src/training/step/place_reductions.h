// place_reductions: the sums of gradients over ranks in the graph of a training step.
//
//   %g : Tensor = aten::mm(%x, %d)                 %g : Tensor = aten::mm(%x, %d)
//   %e : Tensor = aten::mm(%d, %w)                 %c : Tensor = aten::copy_(%view, %g, %no)
//   …                                      →       %r : Tensor = _c10d_functional::all_reduce_(%bucket, "sum", "ranks")
//   -> (%loss, %g)                                 %e : Tensor = aten::mm(%d, %w)
//                                                  …
//                                                  %t : Tensor = _c10d_functional::wait_tensor(%bucket)
//                                                  -> (%loss, %view)
//
// A reduction begins once the last gradient of its bucket is known, and the wait is at the end: in between, backward goes
// on. Nothing else touches the memory of a bucket before its reduction, so that the kernel of a gradient that has the view's
// form writes it there (attr::kHome), and nothing is copied. Reductions stand in the order of the buckets, which is the same
// on all ranks.
#pragma once

#include "ir/graph.h"

#include <sconce/train_step.h>

#include <cstddef>
#include <string>
#include <vector>

namespace sconce {

// The reductions of a step, by positions in the calling convention of its graph.
struct StepReductions {
  struct Member {
    size_t gradient;  // the output
    size_t view;      // the input that is the gradient's place in the bucket
  };
  struct Bucket {
    size_t tensor;  // the input
    std::vector<Member> members;
    size_t bytes = 0;
  };
  std::vector<Bucket> buckets;
  std::string group;  // in c10d's registry
};

// Returns where they stand. The gradients among the outputs are the views in the buckets afterwards.
std::vector<ReductionExplanation> place_reductions(Graph& graph, const StepReductions& reductions);

// Inserts `broadcast_` of a tensor, from rank 0, and its wait before `position`. Returns the tensor that has rank 0's
// elements.
Value* insert_broadcast(Graph& graph, Value* tensor, const std::string& group, Node* position);

}  // namespace sconce
