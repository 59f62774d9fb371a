// The table of prepared operators.
#pragma once

#include "plan/prepared/kernel.h"

#include <ATen/core/operator_name.h>

#include <unordered_map>

namespace sconce {

// Returns null for an operator that is not prepared.
const KernelRow* find_kernel_row(const Op& op);

// ---- the rows, by family: each function adds those of one file
using KernelTable = std::unordered_map<c10::OperatorName, KernelRow>;
void add_pointwise_kernels(KernelTable& table);
void add_selection_kernels(KernelTable& table);
void add_view_kernels(KernelTable& table);
void add_norm_kernels(KernelTable& table);
void add_batch_norm_kernels(KernelTable& table);
void add_layer_norm_kernels(KernelTable& table);
void add_join_kernels(KernelTable& table);
void add_product_kernels(KernelTable& table);
void add_convolution_kernels(KernelTable& table);
void add_convolution_gradient_kernels(KernelTable& table);
void add_volume_kernels(KernelTable& table);
void add_pool_kernels(KernelTable& table);
void add_attention_kernels(KernelTable& table);
void add_recurrent_kernels(KernelTable& table);
void add_recurrent_gradient_kernels(KernelTable& table);
void add_bag_kernels(KernelTable& table);
void add_embedding_gradient_kernels(KernelTable& table);

}  // namespace sconce
