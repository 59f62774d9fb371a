// The loops with vectors of 16 elements. CMake compiles this file for processors that have them.
#ifdef __x86_64__
#include "kernels/loops/softmax_rows.h"

namespace sconce {
namespace {

constexpr int kLanes = 16;
#include "kernels/loops/vectors_code.h"

#include "kernels/loops/softmax_rows_code.h"

}  // namespace

extern const SoftmaxRows kSoftmaxRowsAvx512;
constinit const SoftmaxRows kSoftmaxRowsAvx512 = make_softmax_rows();

}  // namespace sconce
#endif
