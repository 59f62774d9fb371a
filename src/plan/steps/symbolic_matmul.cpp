#include "plan/steps/symbolic_matmul.h"

#include <ATen/ExpandUtils.h>
#include <ATen/ops/_unsafe_view.h>
#include <c10/core/SymInt.h>

#include <algorithm>

namespace sconce {
namespace {

using Sizes = std::vector<c10::SymInt>;

Sizes sizes_of(const at::Tensor& tensor, int64_t count) {
  const c10::SymIntArrayRef all = tensor.sym_sizes();
  return {all.begin(), all.begin() + count};
}

c10::SymInt product_of(const Sizes& sizes) {
  c10::SymInt product = 1;
  for (const c10::SymInt& size : sizes) {
    product = product * size;
  }
  return product;
}

// Returns whether all rows of a batch lie one after the other.
bool has_rows_in_order(const at::Tensor& batch) {
  for (int64_t i = 0; i + 2 < batch.dim(); ++i) {
    if (batch.sym_stride(i) != batch.sym_stride(i + 1) * batch.sym_size(i + 1)) {
      return false;
    }
  }
  return true;
}

bool is_one_product(const at::Tensor& a, const at::Tensor& b) {
  const at::Tensor& batch = a.dim() >= b.dim() ? a : b;
  const at::Tensor& other = a.dim() >= b.dim() ? b : a;
  if (batch.dim() < 3 || other.dim() > 2) {
    return false;
  }
  return other.requires_grad() || (a.dim() != 2 && (batch.sym_numel() == 0 || has_rows_in_order(batch)));
}

// Multiplies all rows at once.
at::Tensor one_product(const at::Tensor& a, const at::Tensor& b) {
  const bool swaps = b.dim() > a.dim();
  const at::Tensor batch = swaps ? b.mT() : a;
  const at::Tensor other = !swaps ? b : a.dim() == 2 ? a.t() : a;
  Sizes result = sizes_of(batch, batch.dim() - 1);
  const Sizes rows = {product_of(result), batch.sym_size(-1)};
  const at::Tensor folded = batch.reshape_symint(rows);
  if (other.dim() == 1) {
    return at::_unsafe_view_symint(folded.mv(other), result);
  }
  result.push_back(other.sym_size(1));
  const at::Tensor product = at::_unsafe_view_symint(folded.mm(other), result);
  return swaps ? product.mT() : product;
}

// Returns the operand as a batch of matrices: [product of `batch`, rows, columns].
at::Tensor as_batch(const at::Tensor& tensor, const Sizes& batch, const std::vector<c10::SymInt>& matrix) {
  Sizes expanded = batch;
  expanded.insert(expanded.end(), matrix.begin(), matrix.end());
  Sizes flat = {product_of(batch)};
  flat.insert(flat.end(), matrix.begin(), matrix.end());
  return tensor.expand_symint(expanded).reshape_symint(flat);
}

at::Tensor batched_product(const at::Tensor& a, const at::Tensor& b) {
  if (a.dim() == 3 && b.dim() == 3 && a.sym_size(0) != b.sym_size(0)) {
    // A matrix that would be repeated, and whose gradient would be summed over the repetitions.
    if (a.sym_size(0) == 1 && a.requires_grad()) {
      return matmul_with_symbolic_sizes(a.squeeze(0), b);
    }
    if (b.sym_size(0) == 1 && b.requires_grad()) {
      return matmul_with_symbolic_sizes(a, b.squeeze(0));
    }
  }
  const Sizes batch_of_a = sizes_of(a, std::max<int64_t>(a.dim() - 2, 0));
  const Sizes batch_of_b = sizes_of(b, std::max<int64_t>(b.dim() - 2, 0));
  const auto joined = at::infer_size_symdimvector(batch_of_a, batch_of_b);
  const Sizes batch(joined.begin(), joined.end());
  const c10::SymInt rows = a.dim() > 1 ? a.sym_size(-2) : c10::SymInt(1);
  const at::Tensor left = as_batch(a, batch, {rows, a.sym_size(-1)});
  Sizes result = batch;
  if (a.dim() > 1) {
    result.push_back(rows);
  }
  if (b.dim() == 1) {
    const at::Tensor right = as_batch(b, batch, {b.sym_size(0)}).unsqueeze(2);
    return at::_unsafe_view_symint(left.bmm(right).squeeze(-1), result);
  }
  const at::Tensor right = as_batch(b, batch, {b.sym_size(-2), b.sym_size(-1)});
  result.push_back(b.sym_size(-1));
  return at::_unsafe_view_symint(left.bmm(right), result);
}

}  // namespace

bool has_symbolic_sizes(const at::Tensor& tensor) {
  const c10::SymIntArrayRef sizes = tensor.sym_sizes();
  return std::any_of(sizes.begin(), sizes.end(), [](const c10::SymInt& size) { return size.is_heap_allocated(); });
}

at::Tensor matmul_with_symbolic_sizes(const at::Tensor& a, const at::Tensor& b) {
  return a.dim() <= 2 && b.dim() <= 2 ? a.matmul(b) : is_one_product(a, b) ? one_product(a, b) : batched_product(a, b);
}

}  // namespace sconce
