#include "kernels/loops/softmax_rows.h"

#include "kernels/loops/tiles.h"

namespace sconce {

extern const SoftmaxRows kSoftmaxRowsAny;
#ifdef __x86_64__
extern const SoftmaxRows kSoftmaxRowsAvx2;
extern const SoftmaxRows kSoftmaxRowsAvx512;

const SoftmaxRows* softmax_rows(int64_t lanes) {
  return tile_kernels(lanes) == nullptr      ? nullptr
         : lanes == kSoftmaxRowsAvx512.lanes ? &kSoftmaxRowsAvx512
         : lanes == kSoftmaxRowsAvx2.lanes   ? &kSoftmaxRowsAvx2
                                             : &kSoftmaxRowsAny;
}
#else
const SoftmaxRows* softmax_rows(int64_t lanes) { return lanes == kSoftmaxRowsAny.lanes ? &kSoftmaxRowsAny : nullptr; }
#endif

const SoftmaxRows& softmax_rows() { return *softmax_rows(tile_kernels().lanes); }

}  // namespace sconce
