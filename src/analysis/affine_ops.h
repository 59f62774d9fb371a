// Operators that compute W·x + b, and the code around them in models, for folding batch norms.
#pragma once

#include "ir/graph.h"

#include <cstddef>
#include <cstdint>
#include <optional>

namespace sconce {

// A convolution, a transposed one, or aten::linear. If the result has the rank of the weight, x is a batch, and the
// output channels are the result's second dimension.
struct AffineOp {
  size_t weight;  // positions among the node's inputs
  size_t bias;
  bool transposed = false;  // the weight is [in, out / groups, …] instead of [out, in / groups, …]
  int64_t groups = 1;
  bool accepts_batches_only = false;  // else x may have another rank
};

// Returns nothing for any other node, and if groups or transposition are not constants.
std::optional<AffineOp> affine_op(const Node& node);

bool is_batch_norm(const Node& node);

// Returns whether the tensor is known to have the rank at that node, because earlier code in the node's block raises
// otherwise: `if x.dim() != 4: raise …`, as in torch.nn's modules, or `assert x.dim() == 4`.
bool has_checked_rank(const Value& tensor, int64_t rank, const Node& at);

}  // namespace sconce
