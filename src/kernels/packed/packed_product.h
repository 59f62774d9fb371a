// PackedProduct: a matrix product with packed weights.
#pragma once

#include "kernels/packed/packed_weights.h"
#include "kernels/packed/tiled_product.h"

namespace sconce {

// out (m x n, dense) = input (m x k) * weight + bias
class PackedProduct final : public PackedOperator {
 public:
  // `has_rows`: the weight is a dense n x k matrix, as that of a linear layer; else a dense k x n one. `row`: elements from
  // one row of the input to the next.
  void set_sizes(int64_t m, int64_t n, int64_t k, bool has_rows, int64_t row);

  // Returns false if the weights are not packed; then nothing is written. `weight`, `bias`: see PackedOperator::find.
  bool run(const KernelArguments& arguments, size_t weight, std::optional<size_t> bias, const float* input, float* out,
           const RowsFunction& then);

 private:
  bool make(PackedWeights& packed, WeightTensors tensors) override;
  void drop() override { packed_ = nullptr; }

  int64_t m_ = 0;
  int64_t n_ = 0;
  int64_t k_ = 0;
  int64_t row_ = 0;
  bool has_rows_ = false;
  TiledProduct product_;
  const float* packed_ = nullptr;
};

}  // namespace sconce
