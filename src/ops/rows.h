// The rows, by family. Add an operator to the family that it belongs to; rows are sorted by name within a group.
#pragma once

#include "ops/op_row.h"

#include <span>

namespace sconce {

std::span<const OpRow> language_rows();   // the language's own nodes
std::span<const OpRow> number_rows();     // numbers, strings, identity
std::span<const OpRow> container_rows();  // lists, dicts
std::span<const OpRow> state_rows();      // printing, raising, waiting; what the thread and process say and hold
std::span<const OpRow> query_rows();      // what a tensor says about itself
std::span<const OpRow> pointwise_rows();  // arithmetic, comparisons, selection
std::span<const OpRow> function_rows();   // elementary functions
std::span<const OpRow> activation_rows();
std::span<const OpRow> reduction_rows();  // sums, extremes, scans, sorting, softmax
std::span<const OpRow> norm_rows();
std::span<const OpRow> product_rows();  // matrix products, recurrent layers
std::span<const OpRow> attention_rows();
std::span<const OpRow> convolution_rows();
std::span<const OpRow> image_rows();  // pooling, resampling
std::span<const OpRow> loss_rows();
std::span<const OpRow> view_rows();      // views, copies, casts
std::span<const OpRow> joining_rows();   // joins, cuts
std::span<const OpRow> indexing_rows();  // elements and rows by index
std::span<const OpRow> factory_rows();   // new tensors from sizes and numbers, random ones too
std::span<const OpRow> gradient_rows();  // LibTorch's operators for gradients of others
std::span<const OpRow> library_rows();   // sparse, quantized, torchvision's, LibTorch's own tests

// Calls `visit` with every row of every family.
template <typename Visit>
void for_each_row(const Visit& visit) {
  for (const auto& rows :
       {language_rows(),    number_rows(),     container_rows(), state_rows(), query_rows(),   pointwise_rows(),
        function_rows(),    activation_rows(), reduction_rows(), norm_rows(),  product_rows(), attention_rows(),
        convolution_rows(), image_rows(),      loss_rows(),      view_rows(),  joining_rows(), indexing_rows(),
        factory_rows(),     gradient_rows(),   library_rows()}) {
    for (const OpRow& row : rows) {
      visit(row);
    }
  }
}

}  // namespace sconce
