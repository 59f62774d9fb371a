// Vectors of kLanes elements. Each of the files that include it is compiled for one kind of processor, and defines kLanes
// first, in a namespace without a name: the linker must never take a function of one file for another's. So code that uses
// it includes no other header, and calls no inline function of the standard library.

using Vector = float __attribute__((vector_size(kLanes * sizeof(float))));
using Unaligned = float __attribute__((vector_size(kLanes * sizeof(float)), aligned(alignof(float)), may_alias));

#define SCONCE_INLINE inline __attribute__((always_inline))

SCONCE_INLINE Vector load(const float* from) { return *reinterpret_cast<const Unaligned*>(from); }
SCONCE_INLINE void store(float* to, Vector value) { *reinterpret_cast<Unaligned*>(to) = value; }
// NaN stays NaN. In this order, each comparison is one instruction that takes the larger or the smaller of two vectors.
SCONCE_INLINE Vector clamp(Vector value, Vector least, Vector most) {
  value = least > value ? least : value;
  return most < value ? most : value;
}
SCONCE_INLINE Vector all(float value) { return value - Vector{}; }  // to add zero would be an instruction: -0 + 0 is 0
SCONCE_INLINE Vector clamp(Vector value, float least, float most) { return clamp(value, all(least), all(most)); }

// ---- lanes by their numbers
//
// As constants in the code: a vector that a loop fills is made anew where it is used.

using Lanes = int __attribute__((vector_size(kLanes * sizeof(int))));

template <int... kLane>
struct LaneNumbers {};
template <int kCount, int... kLane>
struct FirstLanes : FirstLanes<kCount - 1, kCount - 1, kLane...> {};
template <int... kLane>
struct FirstLanes<0, kLane...> {
  using Numbers = LaneNumbers<kLane...>;
};
using AllLanes = FirstLanes<kLanes>::Numbers;

template <int... kLane>
SCONCE_INLINE Lanes lane_numbers(LaneNumbers<kLane...> /*all*/) {
  return Lanes{kLane...};
}
// Adds to each lane the one whose number differs by kBit.
template <int kBit, int... kLane>
SCONCE_INLINE Vector add_neighbors(Vector value, LaneNumbers<kLane...> /*all*/) {
  return value + __builtin_shuffle(value, Lanes{(kLane ^ kBit)...});
}
// Adds up in pairs: one element after the other would wait for each sum.
SCONCE_INLINE float sum_of(Vector value) {
  if constexpr (kLanes > 8) {
    value = add_neighbors<8>(value, AllLanes());
  }
  if constexpr (kLanes > 4) {
    value = add_neighbors<4>(value, AllLanes());
  }
  value = add_neighbors<2>(value, AllLanes());
  return add_neighbors<1>(value, AllLanes())[0];
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

// Stores the first `count` elements of a vector.
SCONCE_INLINE void store_some(float* to, Vector value, int count) {
#ifdef __AVX512F__
  __builtin_ia32_storeups512_mask(to, value, static_cast<unsigned short>((1U << count) - 1));
#else
  copy_some(to, reinterpret_cast<const float*>(&value), count);
#endif
}

// Loads the first `count` elements of a vector; others are `filler`.
SCONCE_INLINE Vector load_some(const float* from, int count, float filler = 0) {
  Vector value = Vector{} + filler;
  copy_some(reinterpret_cast<float*>(&value), from, count);
  return value;
}
