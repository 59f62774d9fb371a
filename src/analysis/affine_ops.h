// Operators that compute W·x + b, and what stands around them in models: what folding a batch norm has to know.
#pragma once

#include "ir/graph.h"

#include <cstddef>
#include <cstdint>
#include <optional>

namespace sconce {

// A convolution, a transposed one, or aten::linear. The output channels are the second dimension of the result if that has
// the rank of the weight: then x is a batch.
struct AffineOp {
  size_t weight;  // positions among the node's inputs
  size_t bias;
  bool transposed = false;  // the weight is [in, out / groups, …] instead of [out, in / groups, …]
  int64_t groups = 1;
  bool accepts_batches_only = false;  // else x may have another rank
};

// Nothing for any other node, and where groups or transposition are no constants.
std::optional<AffineOp> affine_op(const Node& node);

bool is_batch_norm(const Node& node);

// Whether the tensor has the rank at that node, because code before it in its block raises otherwise: `if x.dim() != 4:
// raise …`, as torch.nn's modules check, or `assert x.dim() == 4`.
bool has_checked_rank(const Value& tensor, int64_t rank, const Node& at);

}  // namespace sconce
