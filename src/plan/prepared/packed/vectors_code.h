// Vectors of kLanes elements. Each of the files that include it is compiled for one kind of processor, and defines kLanes
// first, in a namespace without a name: the linker must never take a function of one file for another's. So code that uses
// it includes no other header, and calls no inline function of the standard library.

using Vector = float __attribute__((vector_size(kLanes * sizeof(float))));
using Unaligned = float __attribute__((vector_size(kLanes * sizeof(float)), aligned(alignof(float)), may_alias));

#define SCONCE_INLINE inline __attribute__((always_inline))

SCONCE_INLINE Vector load(const float* from) { return *reinterpret_cast<const Unaligned*>(from); }
SCONCE_INLINE void store(float* to, Vector value) { *reinterpret_cast<Unaligned*>(to) = value; }
SCONCE_INLINE Vector clamp(Vector value, float least, float most) {
  value = value < least ? Vector{} + least : value;
  return value > most ? Vector{} + most : value;
}

// Copies the first `count` elements, fewer than a vector has.
SCONCE_INLINE void copy_some(float* to, const float* from, int count) {
#pragma GCC unroll 4
  for (int step = kLanes / 2; step > 0; step /= 2) {
    if ((count & step) != 0) {
      __builtin_memcpy(to, from, static_cast<unsigned long>(step) * sizeof(float));
      to += step;
      from += step;
    }
  }
}

// Loads the first `count` elements of a vector; others are `filler`.
SCONCE_INLINE Vector load_some(const float* from, int count, float filler = 0) {
  Vector value = Vector{} + filler;
  copy_some(reinterpret_cast<float*>(&value), from, count);
  return value;
}
