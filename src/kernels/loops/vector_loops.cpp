#include "kernels/loops/vector_loops.h"

#include <ATen/Version.h>

#include <string>

namespace sconce {

extern const VectorLoops kLoopsAny;
extern const VectorLoops kLoopsAvx2;
extern const VectorLoops kLoopsAvx512;

namespace {

const VectorLoops* vector_loops(int64_t lanes) {
#ifdef __x86_64__
  const bool has_avx2 = __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma");
  if (lanes > 4) {
    return lanes == 8 && has_avx2                                         ? &kLoopsAvx2
           : lanes == 16 && has_avx2 && __builtin_cpu_supports("avx512f") ? &kLoopsAvx512
                                                                          : nullptr;
  }
#endif
  return lanes == 4 ? &kLoopsAny : nullptr;
}

const VectorLoops& vector_loops() {
  static const VectorLoops& loops = []() -> const VectorLoops& {
    const std::string used = at::get_cpu_capability();
    const VectorLoops* found = used == "AVX512" ? vector_loops(16) : nullptr;
    if (found == nullptr && used.starts_with("AVX")) {
      found = vector_loops(8);
    }
    return found != nullptr ? *found : kLoopsAny;
  }();
  return loops;
}

template <typename Part>
const Part* part_of(const VectorLoops* loops, Part VectorLoops::* part) {
  return loops != nullptr ? &(loops->*part) : nullptr;
}

}  // namespace

const DirectKernels* direct_kernels(int64_t lanes) {
  const VectorLoops* loops = vector_loops(lanes);
  return loops != nullptr ? loops->direct : nullptr;
}
const DirectKernels* direct_kernels() { return vector_loops().direct; }

const BagSums* bag_sums(int64_t lanes) { return part_of(vector_loops(lanes), &VectorLoops::bag_sums); }
const BagSums& bag_sums() { return vector_loops().bag_sums; }

const RecurrentCells* recurrent_cells(int64_t lanes) { return part_of(vector_loops(lanes), &VectorLoops::recurrent_cells); }
const RecurrentCells& recurrent_cells() { return vector_loops().recurrent_cells; }

const SoftmaxRows* softmax_rows(int64_t lanes) { return part_of(vector_loops(lanes), &VectorLoops::softmax_rows); }
const SoftmaxRows& softmax_rows() { return vector_loops().softmax_rows; }

const TileKernels* tile_kernels(int64_t lanes) { return part_of(vector_loops(lanes), &VectorLoops::tiles); }
const TileKernels& tile_kernels() { return vector_loops().tiles; }

}  // namespace sconce
