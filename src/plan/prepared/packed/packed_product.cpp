#include "plan/prepared/packed/packed_product.h"

#include "plan/prepared/packed/xnn_threads.h"

#include <c10/util/Exception.h>

#include <limits>

namespace sconce {

void PackedProduct::set_sizes(int64_t m, int64_t n, int64_t k, bool has_rows, int64_t row) {
  m_ = static_cast<size_t>(m);
  n_ = static_cast<size_t>(n);
  k_ = static_cast<size_t>(k);
  row_ = static_cast<size_t>(row);
  has_rows_ = has_rows;
  threads_ = xnn_threads_for(m * n * k);
  set_form({0, n, k, has_rows ? 1 : 0, row});
}

xnn_status PackedProduct::create(const WeightElements& elements, xnn_weights_cache_t cache, xnn_operator_t* created) {
  constexpr float kInfinity = std::numeric_limits<float>::infinity();
  return xnn_create_fully_connected_nc_f32(k_, n_, row_, n_, elements.weight, elements.bias, -kInfinity, kInfinity,
                                           XNN_FLAG_YIELD_WORKERS | (has_rows_ ? 0 : XNN_FLAG_TRANSPOSE_WEIGHTS), nullptr, cache, created);
}

bool PackedProduct::run(const KernelArguments& arguments, size_t weight, std::optional<size_t> bias, const float* input,
                        float* out) {
  if (!may_read_past(input + (m_ - 1) * row_ + k_) || !find(arguments, weight, bias)) {
    return false;
  }
  if (!take_sizes()) {
    const xnn_status status = xnn_reshape_fully_connected_nc_f32(xnn(), m_, xnn_pool_of(threads_));
    TORCH_INTERNAL_ASSERT(status == xnn_status_success, "XNNPACK refuses sizes of a product");
  }
  const XnnThreads threads(threads_);
  const bool has_run = xnn_setup_fully_connected_nc_f32(xnn(), input, out) == xnn_status_success &&
                       xnn_run_operator(xnn(), threads.get()) == xnn_status_success;
  TORCH_INTERNAL_ASSERT(has_run, "XNNPACK refuses to run a product");
  return true;
}

}  // namespace sconce
