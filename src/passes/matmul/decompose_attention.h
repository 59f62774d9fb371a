// Replaces LibTorch's fast paths of attention and encoder layers by products, norms and attention.
#pragma once

#include "ir/graph.h"

namespace sconce {

//   %y, %none = aten::_native_multi_head_attention(%x, %x, %x, …)
//     →  If the weights fit:  linear, matmul, softmax and matmul for few steps, else scaled_dot_product_attention, linear
//        else:                the operator itself
//   %y = aten::_transformer_encoder_layer_fwd(%x, …)
//     →  If the weights fit:  the same with its norms, residuals and feed-forward products     else:  the operator itself
//
// torch.nn's attention and encoder layers call these operators in evaluation. Written out, products are prepared and read
// packed weights, and activations, residuals and norms become groups.
//
// Legal where query, key and value are one strided tensor of float32 on the CPU, of rank 3; where there is no mask, or a
// strided one on the CPU; and where the weights of attention are not returned. Else, and where sizes do not fit, the
// operator itself runs, or raises. Both operators have no gradient: this pass runs in plans that record none.
//
// Results differ by rounding. Returns whether the graph changed.
bool decompose_attention(Graph& graph);

}  // namespace sconce
