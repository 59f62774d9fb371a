// The code of norms over rows; plane_loops_code.h comes first.
//
// Some rows are summed up before any of them is normalized: a sum takes long from its last addition to the deviation, and
// the processor adds up the next row in the meantime.
constexpr int kRowsTogether = 4;

SCONCE_INLINE void normalize_some(const RowNorms& norms, int64_t first, int rows) {
  const int64_t columns = norms.columns;
  const double of_one = 1 / static_cast<double>(columns);
  const float* x = norms.x + first * columns;
  float* means = norms.means + first;
  float* deviations = norms.deviations + first;
  for (int row = 0; row < rows; ++row) {
    means[row] = static_cast<float>(sum_of_plane(x + row * columns, columns) * of_one);
  }
  for (int row = 0; row < rows; ++row) {
    const double variance = sum_of_squares(x + row * columns, columns, means[row]) * of_one;
    deviations[row] = static_cast<float>(1 / __builtin_sqrt(variance + norms.eps));
  }
  for (int row = 0; row < rows; ++row) {
    const float* in = x + row * columns;
    float* out = norms.out + (first + row) * columns;
    const float mean = means[row];
    const float deviation = deviations[row];
    for_each_vector(
        columns,
        [&](int64_t i, auto met, int /*chain*/) SCONCE_INLINED {
          Vector value = (load_there(in + i, met) - mean) * deviation;
          value = norms.weight != nullptr ? value * load_there(norms.weight + i, met) : value;
          value = norms.bias != nullptr ? value + load_there(norms.bias + i, met) : value;
          store_there(out + i, value, met);
        },
        [] {});
  }
}

void normalize_rows(const RowNorms& norms, int64_t first, int64_t last) {
  for (int64_t row = first; row < last; row += kRowsTogether) {
    normalize_some(norms, row, row + kRowsTogether <= last ? kRowsTogether : static_cast<int>(last - row));
  }
}

// The sums over a row that its gradient needs.
struct SumsOfRow {
  double flows;
  double products;
};

// With n = (x - mean) · deviation and f = gradient · weight: the sums of f and of f · n. Adds to the gradients of weight and
// bias.
SCONCE_INLINE SumsOfRow sums_of_row(const RowNormGradients& of, int64_t row) {
  const float mean = of.means[row];
  const float deviation = of.deviations[row];
  const float* x = of.x + row * of.columns;
  const float* gradient = of.gradient + row * of.columns;
  SumsOfRow sums = {};
  Vector part[kChains] = {};
  Vector part_of_products[kChains] = {};
  for_each_vector(
      of.columns,
      [&](int64_t i, auto met, int chain) SCONCE_INLINED {
        const Vector normal = (load_met(x + i, met, mean) - mean) * deviation;
        const Vector arrives = load_met(gradient + i, met);
        const Vector flow = of.weight != nullptr ? arrives * load_there(of.weight + i, met) : arrives;
        part[chain] += flow;
        part_of_products[chain] += flow * normal;
        if (of.of_weight != nullptr) {
          store_there(of.of_weight + i, load_there(of.of_weight + i, met) + arrives * normal, met);
        }
        if (of.of_bias != nullptr) {
          store_there(of.of_bias + i, load_there(of.of_bias + i, met) + arrives, met);
        }
      },
      [&]() SCONCE_INLINED {
        add_part(part, sums.flows);
        add_part(part_of_products, sums.products);
      });
  return sums;
}

// of_x = deviation · (f - Σf / columns - n · Σ(f · n) / columns)
// (Ba, Kiros and Hinton, "Layer Normalization", 2016)
SCONCE_INLINE void gradient_of_row(const RowNormGradients& of, int64_t row, SumsOfRow sums, double of_one) {
  const float mean = of.means[row];
  const float deviation = of.deviations[row];
  const float* x = of.x + row * of.columns;
  const float* gradient = of.gradient + row * of.columns;
  const auto of_all = static_cast<float>(sums.flows * of_one);
  const auto of_normal = static_cast<float>(sums.products * of_one);
  float* out = of.of_x + row * of.columns;
  for_each_vector(
      of.columns,
      [&](int64_t i, auto met, int /*chain*/) SCONCE_INLINED {
        const Vector normal = (load_there(x + i, met) - mean) * deviation;
        const Vector arrives = load_there(gradient + i, met);
        const Vector flow = of.weight != nullptr ? arrives * load_there(of.weight + i, met) : arrives;
        store_there(out + i, (flow - of_all - normal * of_normal) * deviation, met);
      },
      [] {});
}

void add_gradients_of_rows(const RowNormGradients& gradients, int64_t first, int64_t last) {
  const double of_one = 1 / static_cast<double>(gradients.columns);
  for (int64_t row = first; row < last; row += kRowsTogether) {
    const int64_t end = row + kRowsTogether <= last ? row + kRowsTogether : last;
    SumsOfRow sums[kRowsTogether];
    for (int64_t i = row; i < end; ++i) {
      sums[i - row] = sums_of_row(gradients, i);
    }
    for (int64_t i = row; i < end && gradients.of_x != nullptr; ++i) {
      gradient_of_row(gradients, i, sums[i - row], of_one);
    }
  }
}

constexpr RowNormLoops kRowNormLoops = {.normalize = normalize_rows, .add_gradients = add_gradients_of_rows};
