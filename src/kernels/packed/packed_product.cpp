#include "kernels/packed/packed_product.h"

namespace sconce {

void PackedProduct::set_sizes(int64_t m, int64_t n, int64_t k, bool has_rows, int64_t row) {
  m_ = m;
  row_ = row;
  set_multiplications(m * n * k);
  if (n != n_ || k != k_ || has_rows != has_rows_) {
    n_ = n;
    k_ = k;
    has_rows_ = has_rows;
    product_ = TiledProduct(Panels(tile_kernels(), 1, n, 1, 1, k), {0}, k);
    set_form({0, n, k, has_rows ? 1 : 0});
  }
}

bool PackedProduct::make(PackedWeights& packed, WeightTensors tensors) {
  const WeightElements elements = elements_of(tensors);
  packed_ = packed.fill_once(tensors, product_.panels().elements(), [&](float* to) {
    product_.panels().pack({.data = elements.weight,
                            .bias = elements.bias,
                            .column_distance = has_rows_ ? k_ : 1,
                            .channel_distance = has_rows_ ? 1 : n_},
                           to);
  });
  return true;
}

bool PackedProduct::run(const KernelArguments& arguments, size_t weight, std::optional<size_t> bias, const float* input,
                        float* out, const RowsFunction& then) {
  if (!find(arguments, weight, bias)) {
    return false;
  }
  const auto find_rows = [&](int64_t first, int64_t last, const float** rows) {
    for (int64_t row = first; row < last; ++row) {
      *rows++ = input + row * row_;
    }
  };
  product_.run(packed_, {.count = m_, .elements = k_, .find = find_rows}, out, /*bounds=*/nullptr, then);
  return true;
}

}  // namespace sconce
