// The loops with vectors of 8 elements. CMake compiles this file for processors that have them.
#ifdef __x86_64__
#include "kernels/loops/softmax_rows.h"

namespace sconce {
namespace {

constexpr int kLanes = 8;
#include "kernels/loops/vectors_code.h"

#include "kernels/loops/softmax_rows_code.h"

}  // namespace

extern const SoftmaxRows kSoftmaxRowsAvx2;
constinit const SoftmaxRows kSoftmaxRowsAvx2 = make_softmax_rows();

}  // namespace sconce
#endif
