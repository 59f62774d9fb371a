#include "kernels/kernel_table.h"

namespace sconce {

const KernelRow* find_kernel_row(const Op& op) {
  static const KernelTable& table = []() -> const KernelTable& {
    KernelTable& rows = *new KernelTable;  // jobs may outlive static objects
    add_pointwise_kernels(rows);
    add_selection_kernels(rows);
    add_view_kernels(rows);
    add_norm_kernels(rows);
    add_batch_norm_kernels(rows);
    add_layer_norm_kernels(rows);
    add_join_kernels(rows);
    add_product_kernels(rows);
    add_convolution_kernels(rows);
    add_convolution_gradient_kernels(rows);
    add_volume_kernels(rows);
    add_pool_kernels(rows);
    add_attention_kernels(rows);
    add_recurrent_kernels(rows);
    add_recurrent_gradient_kernels(rows);
    add_bag_kernels(rows);
    add_embedding_gradient_kernels(rows);
    return rows;
  }();
  const auto found = op.schema == nullptr || op.runs_under_autocast ? table.end() : table.find(op.schema->operator_name());
  return found == table.end() ? nullptr : &found->second;
}

}  // namespace sconce
