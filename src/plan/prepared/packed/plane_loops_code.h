// The code of the loops over planes; vectors_code.h comes first.

#define SCONCE_INLINED __attribute__((always_inline))

// Sums that grow at a time: one would wait for each of its additions.
constexpr int kChains = 4;

// Calls `visit` with each vector of pixels: its place, how many of its elements are pixels, and the number of a chain. Calls
// `end_part` after some of them: a long sum rounds less in parts.
template <typename Visit, typename EndPart>
SCONCE_INLINE void for_each_vector(int64_t pixels, Visit visit, EndPart end_part) {
  constexpr int64_t kOfPart = 64 * kChains * kLanes;
  for (int64_t first = 0; first < pixels; first += kOfPart) {
    const int64_t end = first + kOfPart < pixels ? first + kOfPart : pixels;
    int64_t i = first;
    for (; i + kChains * kLanes <= end; i += kChains * kLanes) {
#pragma GCC unroll 4
      for (int chain = 0; chain < kChains; ++chain) {
        visit(i + chain * kLanes, kLanes, chain);
      }
    }
    for (; i + kLanes <= end; i += kLanes) {
      visit(i, kLanes, 0);
    }
    if (i < end) {
      visit(i, static_cast<int>(end - i), 0);
    }
    end_part();
  }
}

SCONCE_INLINE Vector load_pixels(const float* from, int count, float filler = 0) {
  return count == kLanes ? load(from) : load_some(from, count, filler);
}
SCONCE_INLINE void store_pixels(float* to, Vector value, int count) {
  if (count == kLanes) {
    store(to, value);
  } else {
    copy_some(to, reinterpret_cast<const float*>(&value), count);
  }
}

using Doubles = double __attribute__((vector_size(kLanes * sizeof(double))));
using UnalignedDoubles = double __attribute__((vector_size(kLanes * sizeof(double)), aligned(alignof(double)), may_alias));

SCONCE_INLINE void add_part(Vector (&part)[kChains], double* sums) {
  const Vector sum = (part[0] + part[1]) + (part[2] + part[3]);
  auto* to = reinterpret_cast<UnalignedDoubles*>(sums);
  *to = *to + __builtin_convertvector(sum, Doubles);
  for (Vector& chain : part) {
    chain = Vector{};
  }
}

// The product with zero is NaN for infinities and NaN.
bool are_finite(const float* x, int64_t pixels) {
  Vector sums[kChains] = {};
  for_each_vector(
      pixels, [&](int64_t i, int count, int chain) SCONCE_INLINED { sums[chain] += load_pixels(x + i, count) * 0; }, [] {});
  const Vector sum = (sums[0] + sums[1]) + (sums[2] + sums[3]);
  bool are = true;
  for (int lane = 0; lane < kLanes; ++lane) {
    are = are && sum[lane] == 0;
  }
  return are;
}

void add_plane(const float* x, int64_t pixels, double* sums) {
  Vector part[kChains] = {};
  for_each_vector(
      pixels, [&](int64_t i, int count, int chain) SCONCE_INLINED { part[chain] += load_pixels(x + i, count); },
      [&]() SCONCE_INLINED { add_part(part, sums); });
}

void add_squares_of_plane(const float* x, int64_t pixels, float mean, double* sums) {
  Vector part[kChains] = {};
  for_each_vector(
      pixels,
      [&](int64_t i, int count, int chain) SCONCE_INLINED {
        const Vector difference = load_pixels(x + i, count, mean) - mean;
        part[chain] += difference * difference;
      },
      [&]() SCONCE_INLINED { add_part(part, sums); });
}

void add_gradients_of_plane(const float* gradient, const float* x, int64_t pixels, float mean, double* sums,
                            double* products) {
  Vector part[kChains] = {};
  Vector part_of_products[kChains] = {};
  for_each_vector(
      pixels,
      [&](int64_t i, int count, int chain) SCONCE_INLINED {
        const Vector flows = load_pixels(gradient + i, count);
        part[chain] += flows;
        part_of_products[chain] += flows * (load_pixels(x + i, count, mean) - mean);
      },
      [&]() SCONCE_INLINED {
        add_part(part, sums);
        add_part(part_of_products, products);
      });
}

void scale_plane(const float* x, int64_t pixels, float scale, float shift, float* out) {
  for_each_vector(
      pixels,
      [&](int64_t i, int count, int /*chain*/)
          SCONCE_INLINED { store_pixels(out + i, load_pixels(x + i, count) * scale + shift, count); },
      [] {});
}

void scale_gradient_of_plane(const float* gradient, const float* x, int64_t pixels, const PlaneGradient& by, float* out) {
  const PlaneGradient factors = by;
  for_each_vector(
      pixels,
      [&](int64_t i, int count, int /*chain*/) SCONCE_INLINED {
        const Vector from_x = (load_pixels(x + i, count) - factors.mean) * factors.of_x + factors.shift;
        store_pixels(out + i, load_pixels(gradient + i, count) * factors.scale + from_x, count);
      },
      [] {});
}

constexpr PlaneLoops kPlaneLoops = {
    .are_finite = are_finite,
    .add = add_plane,
    .add_squares = add_squares_of_plane,
    .add_gradients = add_gradients_of_plane,
    .scale = scale_plane,
    .scale_gradient = scale_gradient_of_plane,
};
