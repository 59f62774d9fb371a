// PackedProduct: a matrix product with packed weights, by XNNPACK.
#pragma once

#include "plan/prepared/packed/packed_weights.h"

namespace sconce {

// out (m x n, dense) = input (m x k) * weight + bias
class PackedProduct final : public XnnPackedOperator {
 public:
  // `has_rows`: the weight is a dense n x k matrix, as that of a linear layer; else a dense k x n one. `row`: elements from
  // one row of the input to the next.
  void set_sizes(int64_t m, int64_t n, int64_t k, bool has_rows, int64_t row);

  // Returns false if the weights are not packed; then nothing is written. `weight`, `bias`: see PackedOperator::find.
  bool run(const KernelArguments& arguments, size_t weight, std::optional<size_t> bias, const float* input, float* out);

 private:
  xnn_status create(const WeightElements& elements, xnn_weights_cache_t cache, xnn_operator_t* created) override;

  size_t m_ = 0;
  size_t n_ = 0;
  size_t k_ = 0;
  size_t row_ = 0;
  bool has_rows_ = false;
  int threads_ = 1;
};

}  // namespace sconce
