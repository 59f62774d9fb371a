// The code of norms over rows; plane_loops_code.h comes first.

SCONCE_INLINE double total_of(const double (&sums)[kLanes]) {
  double total = 0;
  for (int lane = 0; lane < kLanes; ++lane) {
    total += sums[lane];
  }
  return total;
}

void normalize_rows(const RowNorms& norms, int64_t first, int64_t last) {
  const int64_t columns = norms.columns;
  const auto count = static_cast<double>(columns);
  for (int64_t row = first; row < last; ++row) {
    const float* x = norms.x + row * columns;
    double sums[kLanes] = {};
    add_plane(x, columns, sums);
    const auto mean = static_cast<float>(total_of(sums) / count);
    double squares[kLanes] = {};
    add_squares_of_plane(x, columns, mean, squares);
    const auto deviation = static_cast<float>(1 / __builtin_sqrt(total_of(squares) / count + norms.eps));
    norms.means[row] = mean;
    norms.deviations[row] = deviation;
    float* out = norms.out + row * columns;
    for_each_vector(
        columns,
        [&](int64_t i, int some, int /*chain*/) SCONCE_INLINED {
          Vector value = (load_pixels(x + i, some) - mean) * deviation;
          value = norms.weight != nullptr ? value * load_pixels(norms.weight + i, some) : value;
          value = norms.bias != nullptr ? value + load_pixels(norms.bias + i, some) : value;
          store_pixels(out + i, value, some);
        },
        [] {});
  }
}

// With n = (x - mean) · deviation and f = gradient · weight:
//   of_x = deviation · (f - Σf / columns - n · Σ(f · n) / columns)
// (Ba, Kiros and Hinton, "Layer Normalization", 2016)
SCONCE_INLINE void gradients_of_row(const RowNormGradients& of, int64_t row) {
  const int64_t columns = of.columns;
  const float mean = of.means[row];
  const float deviation = of.deviations[row];
  const float* x = of.x + row * columns;
  const float* gradient = of.gradient + row * columns;
  const auto flow_at = [&](int64_t i, int some) SCONCE_INLINED {
    const Vector flow = load_pixels(gradient + i, some);
    return of.weight != nullptr ? flow * load_pixels(of.weight + i, some) : flow;
  };
  double sums[kLanes] = {};
  double products[kLanes] = {};
  Vector part[kChains] = {};
  Vector part_of_products[kChains] = {};
  for_each_vector(
      columns,
      [&](int64_t i, int some, int chain) SCONCE_INLINED {
        const Vector normal = (load_pixels(x + i, some, mean) - mean) * deviation;
        if (of.of_x != nullptr) {
          const Vector flow = flow_at(i, some);
          part[chain] += flow;
          part_of_products[chain] += flow * normal;
        }
        if (of.of_weight != nullptr) {
          const Vector sum = load_pixels(of.of_weight + i, some) + load_pixels(gradient + i, some) * normal;
          store_pixels(of.of_weight + i, sum, some);
        }
        if (of.of_bias != nullptr) {
          store_pixels(of.of_bias + i, load_pixels(of.of_bias + i, some) + load_pixels(gradient + i, some), some);
        }
      },
      [&]() SCONCE_INLINED {
        add_part(part, sums);
        add_part(part_of_products, products);
      });
  if (of.of_x == nullptr) {
    return;
  }
  const auto count = static_cast<double>(columns);
  const auto of_all = static_cast<float>(total_of(sums) / count);
  const auto of_normal = static_cast<float>(total_of(products) / count);
  float* out = of.of_x + row * columns;
  for_each_vector(
      columns,
      [&](int64_t i, int some, int /*chain*/) SCONCE_INLINED {
        const Vector normal = (load_pixels(x + i, some) - mean) * deviation;
        store_pixels(out + i, (flow_at(i, some) - of_all - normal * of_normal) * deviation, some);
      },
      [] {});
}

void add_gradients_of_rows(const RowNormGradients& gradients, int64_t first, int64_t last) {
  for (int64_t row = first; row < last; ++row) {
    gradients_of_row(gradients, row);
  }
}

constexpr RowNormLoops kRowNormLoops = {.normalize = normalize_rows, .add_gradients = add_gradients_of_rows};
