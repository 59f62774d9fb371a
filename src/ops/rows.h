// The rows, by family. Add an operator to the family that it belongs to; rows are sorted by name within a group.
#pragma once

#include "ops/op_row.h"

#include <array>
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

// The rows of a file of rows/.
struct RowFamily {
  const char* name;  // of the file
  std::span<const OpRow> rows;
};
inline std::array<RowFamily, 21> row_families() {
  return {{{"language", language_rows()},
           {"number", number_rows()},
           {"container", container_rows()},
           {"state", state_rows()},
           {"query", query_rows()},
           {"pointwise", pointwise_rows()},
           {"function", function_rows()},
           {"activation", activation_rows()},
           {"reduction", reduction_rows()},
           {"norm", norm_rows()},
           {"product", product_rows()},
           {"attention", attention_rows()},
           {"convolution", convolution_rows()},
           {"image", image_rows()},
           {"loss", loss_rows()},
           {"view", view_rows()},
           {"joining", joining_rows()},
           {"indexing", indexing_rows()},
           {"factory", factory_rows()},
           {"gradient", gradient_rows()},
           {"library", library_rows()}}};
}

// Calls `visit` with every row of every family.
template <typename Visit>
void for_each_row(const Visit& visit) {
  for (const RowFamily& family : row_families()) {
    for (const OpRow& row : family.rows) {
      visit(row);
    }
  }
}

}  // namespace sconce
