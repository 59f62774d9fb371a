// exp(x) with vectors of kLanes elements, and what is made of it. See vectors_code.h for what the code may call.

using Integers = int __attribute__((vector_size(kLanes * sizeof(int))));

SCONCE_INLINE Vector select(Integers condition, Vector a, Vector b) { return condition ? a : b; }

// exp(x) = 2^n * exp(r), where n is the nearest integer to x / ln 2, and r in [-ln 2 / 2, ln 2 / 2].
struct Exponent {
  Vector r;
  Vector series;  // (exp(r) - 1) / r, by Taylor's series up to r^7 / 7!
  Vector power;   // 2^n
};

// Requires a normal 2^n.
SCONCE_INLINE Exponent exponent_of(Vector x) {
  constexpr float kRound = 12582912.0F;  // 1.5 * 2^23: what is added to it is rounded to an integer
  const Vector shifted = x * 1.44269504088896341F + kRound;
  const Vector n = shifted - kRound;
  Vector r = x - n * 0.693359375F;
  r = r + n * 2.12194440e-4F;
  Vector sum = r * (1.0F / 5040.0F) + 1.0F / 720.0F;
  sum = sum * r + 1.0F / 120.0F;
  sum = sum * r + 1.0F / 24.0F;
  sum = sum * r + 1.0F / 6.0F;
  sum = sum * r + 0.5F;
  sum = sum * r + 1.0F;
  const Integers power = (reinterpret_cast<Integers>(shifted) - 0x4B400000 + 127) << 23;
  return {r, sum, reinterpret_cast<Vector>(power)};
}

// At most 2 units in the last place off. Results below the smallest normal number are 0. NaN stays NaN.
SCONCE_INLINE Vector exp_of(Vector x) {
  constexpr float kMinInput = -87.3365F;
  constexpr float kMaxInput = 88.7228F;
  const Integers is_small = x < kMinInput;
  x = select(is_small, Vector{} + kMinInput, x);
  x = select(x > kMaxInput, Vector{} + kMaxInput, x);
  const Exponent e = exponent_of(x);
  return select(is_small, Vector{}, (e.series * e.r + 1.0F) * e.power);
}

// exp of x clamped to [-87, 88].
SCONCE_INLINE Vector bounded_exp_of(Vector x) {
  const Exponent e = exponent_of(clamp(x, -87.0F, 88.0F));
  return (e.series * e.r + 1.0F) * e.power;
}

// exp(x) - 1 for x <= 0, without the error of the subtraction where x is near 0. NaN stays NaN.
SCONCE_INLINE Vector expm1_below_0(Vector x) {
  const Vector least = all(-40.0F);  // the result is -1
  const Exponent e = exponent_of(least > x ? least : x);
  return e.series * e.r * e.power + (e.power - 1.0F);
}
