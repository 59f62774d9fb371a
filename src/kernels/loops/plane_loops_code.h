// The code of the loops over planes; vectors_code.h comes first.

#define SCONCE_INLINED __attribute__((always_inline))

// Sums that grow at a time: one would wait for each of its additions.
constexpr int kChains = 4;

// Which elements of a vector a loop has not met before: all; the last ones, because the vector overlaps the one before; or
// the first ones, because there are no others.
struct AllElements {};
struct LastElements {
  int count;
};
struct FirstElements {
  int count;
};

// Calls `visit` with vectors of pixels: the place, which elements are met, and the number of a chain. Calls `end_part` after
// some of them: a long sum rounds less in parts.
template <typename Visit, typename EndPart>
SCONCE_INLINE void for_each_vector(int64_t pixels, Visit visit, EndPart end_part) {
  constexpr int64_t kOfPart = 64 * kChains * kLanes;
  if (pixels < kLanes) {
    visit(int64_t{0}, FirstElements{static_cast<int>(pixels)}, 0);
    end_part();
    return;
  }
  int64_t i = 0;
  while (i + kLanes <= pixels) {
    const int64_t end = i + kOfPart < pixels ? i + kOfPart : pixels;
    for (; i + kChains * kLanes <= end; i += kChains * kLanes) {
#pragma GCC unroll 4
      for (int chain = 0; chain < kChains; ++chain) {
        visit(i + chain * kLanes, AllElements{}, chain);
      }
    }
    for (; i + kLanes <= end; i += kLanes) {
      visit(i, AllElements{}, 0);
    }
    if (i < pixels && i + kLanes > pixels) {
      visit(pixels - kLanes, LastElements{static_cast<int>(pixels - i)}, 1);
    }
    end_part();
  }
}

// Loads what is met; other elements are `filler`.
SCONCE_INLINE Vector load_met(const float* from, AllElements /*met*/, float /*filler*/ = 0) { return load(from); }
SCONCE_INLINE Vector load_met(const float* from, FirstElements met, float filler = 0) {
  return load_some(from, met.count, filler);
}
SCONCE_INLINE Vector load_met(const float* from, LastElements met, float filler = 0) {
  return lane_numbers(AllLanes()) >= kLanes - met.count ? load(from) : Vector{} + filler;
}
// Loads all elements of the vector that there are.
template <typename Met>
SCONCE_INLINE Vector load_there(const float* from, Met /*met*/) {
  return load(from);
}
SCONCE_INLINE Vector load_there(const float* from, FirstElements met) { return load_some(from, met.count); }
template <typename Met>
SCONCE_INLINE void store_there(float* to, Vector value, Met /*met*/) {
  store(to, value);
}
SCONCE_INLINE void store_there(float* to, Vector value, FirstElements met) { store_some(to, value, met.count); }

SCONCE_INLINE void add_part(Vector (&part)[kChains], double& sum) {
  sum += static_cast<double>(sum_of((part[0] + part[1]) + (part[2] + part[3])));
#pragma GCC unroll 4
  for (int chain = 0; chain < kChains; ++chain) {
    part[chain] = Vector{};
  }
}

// The product with zero is NaN for infinities and NaN.
bool are_finite(const float* x, int64_t pixels) {
  Vector sums[kChains] = {};
  for_each_vector(
      pixels, [&](int64_t i, auto met, int chain) SCONCE_INLINED { sums[chain] += load_met(x + i, met) * 0; }, [] {});
  return sum_of((sums[0] + sums[1]) + (sums[2] + sums[3])) == 0;
}

SCONCE_INLINE double sum_of_plane(const float* x, int64_t pixels) {
  double sum = 0;
  Vector part[kChains] = {};
  for_each_vector(
      pixels, [&](int64_t i, auto met, int chain) SCONCE_INLINED { part[chain] += load_met(x + i, met); },
      [&]() SCONCE_INLINED { add_part(part, sum); });
  return sum;
}
double plane_sum(const float* x, int64_t pixels) { return sum_of_plane(x, pixels); }

SCONCE_INLINE double sum_of_squares(const float* x, int64_t pixels, float mean) {
  double sum = 0;
  Vector part[kChains] = {};
  for_each_vector(
      pixels,
      [&](int64_t i, auto met, int chain) SCONCE_INLINED {
        const Vector difference = load_met(x + i, met, mean) - mean;
        part[chain] += difference * difference;
      },
      [&]() SCONCE_INLINED { add_part(part, sum); });
  return sum;
}
double plane_squares(const float* x, int64_t pixels, float mean) { return sum_of_squares(x, pixels, mean); }

void add_gradients_of_plane(const float* gradient, const float* x, int64_t pixels, float mean, double* sum,
                            double* product) {
  double sum_of_part = 0;
  double product_of_part = 0;
  Vector part[kChains] = {};
  Vector part_of_products[kChains] = {};
  for_each_vector(
      pixels,
      [&](int64_t i, auto met, int chain) SCONCE_INLINED {
        const Vector flows = load_met(gradient + i, met);
        part[chain] += flows;
        part_of_products[chain] += flows * (load_met(x + i, met, mean) - mean);
      },
      [&]() SCONCE_INLINED {
        add_part(part, sum_of_part);
        add_part(part_of_products, product_of_part);
      });
  *sum += sum_of_part;
  *product += product_of_part;
}

void scale_plane(const float* x, int64_t pixels, float scale, float shift, float* out) {
  for_each_vector(
      pixels,
      [&](int64_t i, auto met, int /*chain*/)
          SCONCE_INLINED { store_there(out + i, load_there(x + i, met) * scale + shift, met); },
      [] {});
}

void scale_gradient_of_plane(const float* gradient, const float* x, int64_t pixels, const PlaneGradient& by, float* out) {
  const PlaneGradient factors = by;
  for_each_vector(
      pixels,
      [&](int64_t i, auto met, int /*chain*/) SCONCE_INLINED {
        const Vector from_x = (load_there(x + i, met) - factors.mean) * factors.of_x;
        store_there(out + i, (load_there(gradient + i, met) - factors.mean_gradient - from_x) * factors.scale, met);
      },
      [] {});
}

constexpr PlaneLoops kPlaneLoops = {
    .are_finite = are_finite,
    .sum = plane_sum,
    .sum_of_squares = plane_squares,
    .add_gradients = add_gradients_of_plane,
    .scale = scale_plane,
    .scale_gradient = scale_gradient_of_plane,
};
